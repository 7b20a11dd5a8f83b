# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # MMap: a tour to kernel space and back again
# The article follows one question through the kernel: why does an application take a quarter of an hour to start on a
# customer's disk if it looks up its index in mapped files, and two minutes if it reads the files first? It prints most of
# the figures that this project retraces.

# %% tags=["parameters"]
bundles = None  # the project's stored runs; else a folder of bundles

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import analysis

claims = analysis.claims("003", bundles)
pd.crosstab(claims["experiment"], claims["verdict"])

# %% [markdown]
# ## Published and measured
# All figures for which a run has a number, in the article's unit. A point on the line is as published. Times on another
# machine may be anywhere; what counts is decided by each row's rule.

# %%
numbers = claims[["published", "measured", "low", "high"]].apply(pd.to_numeric, errors="coerce")
known = claims.assign(**numbers).dropna(subset=["published", "measured"])
known = known[(known["published"] > 0) & (known["measured"] > 0)]
columns = ["id", "experiment", "condition", "published", "measured", "low", "high"]
known[[*columns, "unit", "n", "verdict"]].head(25)

# %%
fig, ax = plt.subplots(figsize=(6.5, 5), layout="constrained")
for verdict, rows in known.groupby("verdict"):
    label = f"{verdict.replace('_', ' ')} ({len(rows)})"
    ax.scatter(rows["published"], rows["measured"], s=18, alpha=0.7, label=label)
if len(known):
    both = known[["published", "measured"]]
    ends = np.array([both.min().min(), both.max().max()])
    ax.plot(ends, ends, color="grey", lw=0.8)
    ax.legend()
ax.set(xscale="log", yscale="log")
ax.set(xlabel="published, in its unit", ylabel="measured, in the same unit");

# %% [markdown]
# ## What does not hold
# Rows that were measured and differ, with the reason.

# %%
columns = ["id", "condition", "published", "measured", "low", "high", "unit", "n", "reason"]
claims.loc[claims["verdict"] == "not_held", columns]

# %% [markdown]
# ## The article's central table: a tenth of the memory
# Random reads of a file that is not loaded, with and without a limit of a tenth of its size. The article measured 32 bytes
# from the disk for each byte read.

# %%
run = analysis.load("constrained-random", bundles=bundles)
run.about

# %%
medians = run.medians("full_pass_seconds")
medians.pivot(index=["source", "pattern"], columns="cage", values="median")

# %%
amplification = run.medians("amplification").dropna(subset="median")
columns = ["cage", "pattern", "median", "low", "high", "kind", "n"]
amplification.loc[amplification["source"] == "unloaded", columns]

# %%
table = claims[claims["experiment"] == "constrained-random"]
table[["id", "condition", "published", "measured", "low", "high", "unit", "n", "verdict"]]
