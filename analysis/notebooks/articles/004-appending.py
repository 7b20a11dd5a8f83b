# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Appending a Bit, in Pieces
# The article's question: how fast can several processes append records to one file? Its own log in a mapped file reserves
# space by adding to a shared cursor, without a lock and without a system call. It is compared with five ordinary ways.

# %% tags=["parameters"]
bundles = None  # the project's stored runs; else a folder of bundles

# %%
import matplotlib.pyplot as plt
import pandas as pd

import analysis

claims = analysis.claims("004", bundles)
claims["verdict"].value_counts().to_frame()

# %% [markdown]
# ## Published and measured
# Total times of four processes. The article's O_DIRECT rows time calls that fail with EINVAL, and its own log drops records
# when a call gives up. `reason` says so in the rows of such wrong answers.

# %%
total = claims[claims["metric"] == "total time"].copy()
parts = r"method=(.*?);procs=4;ops=\d+;bytes=(\d+)"
total[["method", "bytes"]] = total["condition"].str.extract(parts)
numbers = total[["published", "measured", "low", "high"]].apply(pd.to_numeric, errors="coerce")
total = total.assign(**numbers)
columns = ["id", "bytes", "method", "published", "measured", "low", "high"]
total[[*columns, "unit", "n", "verdict", "reason"]]

# %%
fig, axes = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True, layout="constrained")
for ax, size in zip(axes, ("1", "128", "4095"), strict=True):
    rows = total[total["bytes"] == size].set_index("method")[["published", "measured"]]
    rows.plot.barh(ax=ax, width=0.7, legend=size == "1")
    ax.set(title=f"records of {size} bytes", xlabel="milliseconds", ylabel="", xscale="log")
axes[0].invert_yaxis();

# %% [markdown]
# ## Every way, also those that the article leaves out
# Time per record, as the time of the whole test divided by the calls of all processes: the inverse of a rate, not a latency.

# %%
run = analysis.load("append-log", bundles=bundles)
run.about

# %%
per_call = run.medians("with_start_per_call_us")
four = per_call[per_call["procs"] == "4"]
four.dropna(subset="median")[["bytes", "method", "median", "low", "high", "kind", "n"]]

# %%
wide = four.pivot(index="method", columns="bytes", values="median").dropna(how="all")
fig, ax = plt.subplots(figsize=(8, 4.2), layout="constrained")
for number, size in enumerate(wide):
    ax.scatter(wide[size], wide.index.astype(str), marker="osD"[number], label=f"{size} bytes")
ax.set(xscale="log", xlabel="microseconds per record, four processes")
ax.invert_yaxis()
ax.legend();

# %% [markdown]
# ## What the mapped log gains and loses
# `write` divided by the log that keeps every record, with intervals: above 1 the log is faster.

# %%
gain = run.ratios({"method": "write"}, {"method": "pclog"}, "with_start_seconds")
gain

# %% [markdown]
# ## Records that are lost
# Counts of the article's own design, rewritten faithfully. A trial with a lost record is a wrong answer.

# %%
trials = run.trial_df
lost = trials[trials["method"] == "seed-mmlog"]
kept = [name for name in ("lost_records", "failed_calls") if name in lost]
lost[["bytes", "procs", "repeat", "outcome", *kept]]
