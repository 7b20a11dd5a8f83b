# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% tags=["parameters"]
run_dir = "."
include = []

# %%
from analysis.views.notebook import Results

results = Results(run_dir, include)
results.heading

# %% tags=["optional"]
results.answer

# %% [markdown]
# ## The table
# Median over trials, below it how far they spread: the exact 95 % interval of the median from six trials upwards, the range
# below that. `killed`: the kernel ended it for memory. `≈`: only a part of the data was read before the time ran out; the
# figure is that part scaled to the whole. `wrong`: the answer was wrong, and below it stands in what way. `( ) †`: rests on excluded trials alone. Published figures are at the published size.

# %%
results.cells

# %% tags=["optional"]
results.tables

# %% tags=["optional"]
results.heat

# %% tags=["optional"]
results.figure

# %% tags=["optional"]
results.latencies

# %% tags=["optional"]
results.claims

# %% tags=["optional"]
results.sweep

# %% tags=["optional"]
results.diagnosis

# %% [markdown]
# ## The evidence
# A trial counts when nothing excludes it: a limit that leaked, a cache state that was not reached, a host that was not quiet.
# Each limit is read back from the kernel, compared with what went through, and driven against by something stronger than the trial.

# %%
results.evidence

# %% tags=["optional"]
results.amplification

# %% tags=["optional"]
results.timelines

# %% tags=["optional"]
results.residency

# %% tags=["optional"]
results.kernel

# %% [markdown]
# ## The trials, the host, and how this was made

# %%
results.trials

# %% tags=["optional"]
results.facts

# %%
results.making
