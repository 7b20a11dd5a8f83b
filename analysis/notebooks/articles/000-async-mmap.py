# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Async hazard: mmap is secretly blocking IO
# The article's question: does an asynchronous program that indexes mapped files still run its tasks concurrently? Its answer
# is no. A page that is not in memory makes the whole thread wait for the disk, and with it the executor and every other
# task. Eight tasks took as long as one thread that reads one file after another.

# %% tags=["parameters"]
bundles = None  # the project's stored runs; else a folder of bundles

# %%
import matplotlib.pyplot as plt
import pandas as pd

import analysis

claims = analysis.claims("000", bundles)
claims["verdict"].value_counts().to_frame()

# %% [markdown]
# ## Published and measured
# One row per figure of the article. `measured` is in the article's unit, with the ends of its interval and the number of
# trials. The article measured on a Mac, so times differ; ratios and orders are what can be reproduced.

# %%
columns = ["id", "condition", "metric", "published"]
columns += ["measured", "low", "high", "unit", "n", "verdict"]
claims.loc[claims["measured"].notna(), columns]

# %% [markdown]
# ## The article's figure
# Seconds for eight files of which nothing is in memory, as the article printed them and as measured here.

# %%
def seconds(how, io):
    cold = claims["condition"].str.startswith(f"concurrency={how};io={io};cache=cold")
    where = cold & (claims["metric"] == "time_min")
    return claims[where].iloc[0]

ways = [(how, io) for how in ("async", "sync1", "sync8") for io in ("mmap", "conventional")]
pairs = {f"{how}, {io}": seconds(how, io) for how, io in ways}
shown = ["published", "measured", "low", "high", "n"]
times = pd.DataFrame({name: row[shown] for name, row in pairs.items()}).T
times

# %%
fig, ax = plt.subplots(figsize=(8, 3.2), layout="constrained")
drawn = times[["published", "measured"]].apply(pd.to_numeric, errors="coerce")
drawn.plot.barh(ax=ax, width=0.7)
ax.invert_yaxis()
ax.set_xlabel("seconds, files not in memory");

# %% [markdown]
# ## The ratios
# The conclusion needs no Mac: tasks on mapped files take as long as one thread, and several times as long as tasks that use
# ordinary reads.

# %%
run = analysis.load("async-hazard", bundles=bundles)
run.about

# %%
cold = {"cache": "cold"}
rows = {
    "async mmap over one thread, mmap": run.ratios({"exec": "async-ct"}, {"exec": "sync1"}),
    "async mmap over eight threads, mmap": run.ratios({"exec": "async-ct"}, {"exec": "sync8"}),
}
ratios = pd.concat(rows, names=["ratio of"]).reset_index(level=0)
ratios[(ratios["io"] == "mmap") & (ratios["cache"] == "cold")]

# %%
conventional = run.ratios({"io": "mmap"}, {"io": "conventional"})
conventional[conventional["cache"] == "cold"]

# %% [markdown]
# ## What the article expected and did not measure
# The longest time in which another task of the executor did not run, in microseconds. It is due every millisecond.

# %%
gaps = run.medians("gap_max_us").dropna(subset="median")
gaps[gaps["cache"] == "cold"][["exec", "io", "median", "low", "high", "kind", "n"]]

# %%
fig, ax = plt.subplots(figsize=(8, 3), layout="constrained")
is_async = gaps["exec"].isin(["async-ct", "async-mt", "c-epoll", "python-asyncio"])
cold = gaps[(gaps["cache"] == "cold") & is_async]
by_io = cold.pivot(index="exec", columns="io", values="median")
by_io.dropna(how="all").div(1000).plot.barh(ax=ax, width=0.7)
ax.set(xscale="log", xlabel="longest gap of another task, milliseconds", ylabel="");
