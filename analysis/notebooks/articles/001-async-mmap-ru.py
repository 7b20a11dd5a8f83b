# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A translation of: Async hazard: mmap is secretly blocking IO
# The Russian translation prints the figures of the original, so the same runs test them. Its own question is therefore
# another one: does it print what the original printed?

# %% tags=["parameters"]
bundles = None  # the project's stored runs; else a folder of bundles

# %%
import matplotlib.pyplot as plt

import analysis

original = analysis.claims("000", bundles)
translation = analysis.claims("001", bundles)
len(original), len(translation)

# %% [markdown]
# ## Row by row
# Rows are matched by condition and metric. A row of the translation without a partner states its condition differently.

# %%
same = ["condition", "metric"]
both = translation.merge(original, on=same, how="left", suffixes=("", "_original"))
both[["id", "id_original", "metric", "unit", "unit_original", "published", "published_original"]]

# %% [markdown]
# Figures or units that differ, and rows without a partner:

# %%
is_other = both["published"] != both["published_original"]
is_other |= both["unit"] != both["unit_original"]
columns = ["id", *same, "published", "unit", "published_original", "unit_original", "remark"]
both.loc[is_other, columns]

# %% [markdown]
# ## Published and measured

# %%
translation[["id", "condition", "published", "measured", "low", "high", "unit", "n", "verdict"]]

# %%
run = analysis.load("async-hazard", bundles=bundles)
medians = run.medians().dropna(subset="median")
medians[["exec", "io", "cache", "median", "low", "high", "kind", "n"]]

# %%
drawn = medians[medians["exec"].isin(["async-ct", "sync8", "sync1"])]
fig, ax = plt.subplots(figsize=(8, 3.2), layout="constrained")
for (io, cache), rows in drawn.groupby(["io", "cache"], observed=True):
    spread = [rows["median"] - rows["low"], rows["high"] - rows["median"]]
    look = {"fmt": "o", "capsize": 4, "label": f"{io}, {cache}"}
    ax.errorbar(rows["exec"].astype(str), rows["median"], yerr=spread, **look)
ax.set(yscale="log", ylabel=f"{run.response}")
ax.legend();

# %%
translation["verdict"].value_counts().to_frame()
