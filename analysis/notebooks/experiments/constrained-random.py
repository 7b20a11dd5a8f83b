# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A tenth of the memory: constrained-random
# A program reads every byte of a mapped file once, in order or at random. How much slower is it if only a tenth of the file
# may be in memory? The answer depends on where the bytes are when the reading starts: on the heap, in the page cache, or on
# the disk.

# %% tags=["parameters"]
# The newest run here, else the newest stored one; or a run's folder, or a bundle.
source = "constrained-random"

# %%
import matplotlib.pyplot as plt

import analysis

run = analysis.load(source)
run.about

# %% [markdown]
# ## How long a whole pass takes
# Medians in seconds with their intervals. A killed treatment has no time: its heap did not fit, which is its answer.

# %%
medians = run.medians("full_pass_seconds")
medians[["cage", "source", "pattern", "median", "low", "high", "kind", "n", "killed"]]

# %%
medians.pivot(index=["source", "pattern"], columns="cage", values="median")

# %% [markdown]
# ## What the limit costs
# The time with a tenth of the memory, divided by the time without a limit. A file that is resident costs nothing, because
# the kernel charged its pages to the process that read them first. A file that must be read costs most in random order.

# %%
cost = run.ratios({"cage": "tenth"}, {"cage": "uncaged"}, "full_pass_seconds")
cost

# %% [markdown]
# ## What random order costs
# Without a limit and with one: random pages, divided by the same pages in order.

# %%
order = run.ratios({"pattern": "random"}, {"pattern": "sequential"}, "full_pass_seconds")
order

# %% [markdown]
# ## Why: bytes that the disk delivers for each byte read
# Each fault reads a read-ahead window around one page. Without a limit the neighbours stay in memory until they are needed.
# With one they are dropped first, and are read again.

# %%
amplification = run.medians("amplification").dropna(subset="median")
unloaded = amplification[amplification["source"] == "unloaded"]
unloaded[["cage", "pattern", "median", "low", "high", "n"]]

# %%
times = medians[(medians["source"] == "unloaded")].dropna(subset="median")
fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
labels = ("seconds of a whole pass", "bytes from the disk per byte")
for ax, part, label in zip(axes, (times, unloaded), labels):
    for cage, rows in part.groupby("cage", observed=True):
        spread = [rows["median"] - rows["low"], rows["high"] - rows["median"]]
        look = {"fmt": "o", "capsize": 4, "label": cage}
        ax.errorbar(rows["pattern"].astype(str), rows["median"], yerr=spread, **look)
    ax.set(ylabel=label, yscale="log")
axes[0].legend(title="memory")
fig.suptitle("A file that is not loaded: the time follows the bytes");

# %% [markdown]
# ## The disk during one trial
# Read rate of the slowest treatment. The reader asks for 4 KiB, and the disk is busy with whole windows.

# %%
traces = run.trace_df
slowest = run.trial_df.sort_values("full_pass_seconds", na_position="first").iloc[-1]
fig, ax = plt.subplots(figsize=(9, 2.6), layout="constrained")
of_slowest = traces[traces["treatment"] == slowest["treatment"]]
for _, rows in of_slowest.groupby("trial_id", observed=True):
    ax.plot(rows["seconds"], rows["read_bytes_per_second"] / 1e6, lw=0.8)
ax.set_title(slowest["treatment"])
ax.set(xlabel="seconds since the start of the measured part", ylabel="MB/s from the disk");

# %% [markdown]
# ## Published and measured
# The article had 10 GiB; another size compares ratios and bytes, and no times.

# %%
claims = run.claim_df
claims[["id", "says", "published", "measured", "low", "high", "unit", "n", "verdict"]]

# %%
claims["verdict"].value_counts().to_frame()
