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

# %% tags=["part"]
from analysis.views.notebook import Results

results = Results(run_dir, include)
results.heading

# %% tags=["optional"]
results.answer

# %% [markdown]
# ## Results

# %% tags=["part"]
results.cells

# %% tags=["optional"]
results.tables

# %% tags=["optional"]
results.figure

# %% tags=["optional"]
results.latencies

# %% tags=["optional"]
results.own_collectors

# %% tags=["optional"]
results.sweep

# %% tags=["optional"]
results.diagnosis

# %% [markdown]
# ## Background and evidence

# %% tags=["optional"]
results.claims

# %% tags=["optional"]
results.story

# %% tags=["part"]
results.limitations

# %% tags=["part"]
results.evidence

# %% tags=["optional"]
results.amplification

# %% tags=["optional"]
results.timelines

# %% tags=["optional"]
results.residency

# %% tags=["optional"]
results.kernel

# %% tags=["part"]
results.trials

# %% tags=["optional"]
results.facts

# %% tags=["part"]
results.making
