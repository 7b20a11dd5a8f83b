# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Prefaulting Memory Mapped Arrays in Julia
# The article's question: how is a file of 15 GiB brought into memory before it is used, and what does using it cost then?
# It compares an ordinary read with a mapping that is populated, touched, or used as it is.

# %% tags=["parameters"]
bundles = None  # the project's stored runs; else a folder of bundles

# %%
import matplotlib.pyplot as plt

import analysis

claims = analysis.claims("002", bundles)
claims["verdict"].value_counts().to_frame()

# %% [markdown]
# ## Published and measured

# %%
columns = ["id", "condition", "metric", "published", "measured", "low", "high"]
claims[[*columns, "unit", "n", "verdict", "reason"]]

# %% [markdown]
# ## Loading, and summing afterwards
# Medians of both parts from files that are not in memory, with their intervals.

# %%
run = analysis.load("prefault", bundles=bundles)
run.about

# %%
names = ("prefault_seconds", "sum_seconds", "total_seconds")
parts = {name: run.medians(name).set_index(["cache", "method"]) for name in names}
columns = ["median", "low", "high", "n"]
cold = {name: frame.loc["cold", columns] for name, frame in parts.items()}
cold["total_seconds"]

# %%
load = cold["prefault_seconds"]["median"].rename("load")
both = load.to_frame().join(cold["sum_seconds"]["median"].rename("sum"))
both.sort_values("load")

# %%
fig, ax = plt.subplots(figsize=(8, 3.4), layout="constrained")
both.dropna().sort_values("load").plot.barh(stacked=True, ax=ax, width=0.7)
ax.set(xlabel="seconds, file not in memory", ylabel="");

# %% [markdown]
# ## The author's open question
# Reading first and then adding up took 13.9 s in the article, and adding up the mapping as it is took 10.4 s. Either the
# disk reads ahead while the sum runs, or the copy of the read is saved. `populate-read` has neither. The ratios of the whole
# time, with intervals:

# %%
pairs = (("read", "map-only"), ("populate-read", "map-only"), ("read", "populate-read"))
for over, under in pairs:
    sides = [{"method": method, "cache": "cold"} for method in (over, under)]
    ratio = run.ratios(*sides, "total_seconds")
    print(f"{over} over {under}\n{ratio.to_string(index=False)}\n")

# %% [markdown]
# ## A file that is already in memory
# The article's second process maps a resident file: nothing is read, and what remains is the work of mapping.

# %%
parts["prefault_seconds"].loc["resident", columns]
