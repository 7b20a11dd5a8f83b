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
# ## Results
# Each cell is the median over trials. Below it is the exact 95 % interval of the median from six trials on, and the range
# otherwise. `killed`: the kernel killed the program for memory. `≈`: the time ran out before all data was read; the figure is
# scaled to the whole. `wrong`: the answer was wrong, for the reason below. `( ) †`: rests on excluded trials alone. `°`:
# includes trials whose limits or whose quiet host are not proven. Published figures are at the published size. `per GiB` and `per call` divide both times by their own amount of work.

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
# ## Evidence
# A trial is excluded by a leaky limit, a cache state that was not reached, or a host that was not quiet. Each limit is read
# back from the kernel, compared with the trial's throughput, and over-driven by a stronger load than the trial.

# %%
results.evidence

# %% tags=["optional"]
results.amplification

# %% tags=["optional"]
results.timelines

# %% tags=["optional"]
results.own_collectors

# %% tags=["optional"]
results.residency

# %% tags=["optional"]
results.kernel

# %% [markdown]
# ## Trials, host and reproduction

# %%
results.trials

# %% tags=["optional"]
results.facts

# %%
results.making
