# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A start on a customer's disk: customer-replay
# An application took a quarter of an hour to start with lookups in mapped files, and two minutes after its files were read in
# order. Here the same start runs without limits and on disks like the customer's, with the index loaded in ten ways.

# %% tags=["parameters"]
# The newest run here, else the newest stored one; or a run's folder, or a bundle.
source = "customer-replay"

# %%
import matplotlib.pyplot as plt

import analysis

run = analysis.load(source)
run.about

# %% [markdown]
# ## Time to the last answer
# Medians in seconds with their intervals.

# %%
medians = run.medians()
medians[["cage", "load", "median", "low", "high", "kind", "n", "excluded"]]

# %%
starts = medians[~medians["load"].astype(str).str.startswith("fio")]
wide = starts.pivot(index="load", columns="cage", values="median").dropna(how="all")
wide

# %% [markdown]
# ## How many times faster is a start that reads its files in order?
# The customer's figures give 7.5. `low` and `high` are the ends of the interval of each ratio.

# %%
run.ratios({"load": "lazy-normal"}, {"load": "sequential"})

# %%
run.ratios({"load": "java-lazy"}, {"load": "java-sequential"})

# %% [markdown]
# ## Which limit a lazy start meets
# Bytes of one read, and reads per second. Whole windows of 128 KiB meet the limit on bytes; single pages meet the limit on
# reads, with a tenth of the bytes.

# %%
trials = run.trial_df
reads = trials[trials["is_included"] & (trials["device_reads"] > 0)].copy()
reads["KiB per read"] = reads["device_read_bytes"] / reads["device_reads"] / 1024
reads["reads per second"] = reads["device_reads"] / reads[run.response]
reads.groupby(["cage", "load"], sort=False)[["KiB per read", "reads per second"]].median()

# %%
fig, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
wide.plot.barh(ax=axes[0], width=0.75)
axes[0].set(xscale="log", xlabel=run.response, ylabel="")
axes[0].invert_yaxis()
for cage, rows in reads.groupby("cage", sort=False):
    axes[1].scatter(rows["KiB per read"], rows["reads per second"], label=cage)
axes[1].set(xscale="log", yscale="log", xlabel="KiB per read", ylabel="reads per second")
axes[1].legend();

# %% [markdown]
# ## Published and measured

# %%
claims = run.claim_df
claims[["id", "says", "published", "measured", "low", "high", "unit", "n", "verdict"]]
