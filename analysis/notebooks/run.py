# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A run as data frames
# This notebook reads one run, of any experiment. Each cell makes a frame or a picture from the frames above it.

# %% tags=["parameters"]
source = "constrained-random"  # the name of an experiment, the folder of a run, or a bundle

# %%
import matplotlib.pyplot as plt
import pandas as pd

import analysis

run = analysis.load(source)
print(run.question)
run.about

# %% [markdown]
# ## Medians
# One row is one treatment: a combination of levels. `low` and `high` are the ends of the interval: the exact 95 % interval
# of the median from six trials on, the range otherwise (`kind`). `n` trials are included. The other columns count the
# trials that are not: killed for memory, excluded by a verdict, without an answer. A figure with `is_all_excluded` rests
# on excluded trials alone and proves nothing.

# %%
medians = run.medians()
columns = ["median", "low", "high", "kind", "n"]
columns += ["killed", "excluded", "unanswered", "is_all_excluded"]
medians[[*run.factors, *columns]]

# %% [markdown]
# The same medians with the levels of the last varying factor side by side.

# %%
varying = [name for name in run.factors if medians[name].nunique() > 1]
varying = varying or list(run.factors)[-1:]
by_level = medians.set_index(varying)
by_level["median"].unstack() if len(varying) > 1 else by_level[["median"]]

# %% [markdown]
# ## Picture of the medians
# One row per treatment, the fastest at the top, and the interval as a line. Treatments without a figure are left out; of
# many treatments the first forty are drawn.

# %%
drawn = medians.dropna(subset="median").sort_values("median").head(40)
labels = [" · ".join(levels) for levels in drawn[varying].astype(str).to_numpy()]
fig, ax = plt.subplots(figsize=(8, 1 + 0.27 * len(drawn)), layout="constrained")
spread = [drawn["median"] - drawn["low"], drawn["high"] - drawn["median"]]
ax.errorbar(drawn["median"], labels, xerr=spread, fmt="o", capsize=3)
ax.set_xlabel(run.response)
ax.invert_yaxis()
is_positive = len(drawn) and (drawn["median"] > 0).all()
if is_positive and drawn["median"].max() > 20 * drawn["median"].min():
    ax.set_xscale("log")

# %% [markdown]
# ## Trials, in the order they ran
# A drift of the machine would show as a slope that all treatments share. Hollow points are not included.

# %%
trials = run.trial_df
shown = ["trial_id", *varying, "repeat", "outcome", "is_included", "reasons"]
trials[[*shown, *({run.response} & {*trials})]].head(12)

# %%
fig, ax = plt.subplots(figsize=(8, 3), layout="constrained")
if run.response in trials:
    medians_of_trials = trials.groupby("treatment")[run.response].transform("median")
    relative = trials[run.response] / medians_of_trials
    for is_included, part in relative.groupby(trials["is_included"]):
        look = {"facecolors": "C0" if is_included else "none", "edgecolors": "C0"}
        look["label"] = f"included: {is_included}"
        ax.scatter(trials.loc[part.index, "position"], part, **look)
    ax.legend()
ax.set(xlabel="position", ylabel=f"{run.response} / median of its treatment");

# %% [markdown]
# The reasons for which trials are not included:

# %%
excluded = trials.loc[~trials["is_included"], ["outcome", "reasons"]]
excluded.value_counts().rename("trials").to_frame()

# %% [markdown]
# ## Counters of the kernel
# How much each counter grew in the measured part, as the median over the included trials of a treatment.

# %%
counters = run.counter_df
included = counters[counters["is_included"].astype(bool)]
names = ["reads", "sectors_read", "writes"]
names += ["memory.stat.pgmajfault", "memory.stat.workingset_refault_file"]
shown = included[included["source"].isin(["device", "cgroup"]) & included["counter"].isin(names)]
by_counter = shown.groupby(["treatment", "counter"], sort=False)["grown"].median()
by_counter.unstack().dropna(axis=1, how="all")

# %% [markdown]
# ## Published and measured
# Only experiments that test an article have such rows.

# %%
claims = run.claim_df
columns = ["id", "says", "published", "measured", "low", "high", "unit", "n", "verdict"]
claims.loc[claims["measured"].notna(), columns]

# %% [markdown]
# ## Go on
# `run.trace_df` has the rates of each trial every tenth of a second, `run.latency_df` the buckets of its histograms, and
# `run.sample_df` one row per timed pass. `run.medians("device_read_bytes")` gives the medians of another response:

# %%
of_the_plan = {"repeat", "position", "attempt"}
numbers = [name for name in trials.select_dtypes("number") if name not in of_the_plan]
pd.DataFrame({"response": numbers})
