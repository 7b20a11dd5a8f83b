# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% tags=["parameters"]
run_dir = "."

# %%
from analysis.results import Results

results = Results(run_dir)
results.heading

# %% [markdown]
# ## The table
# Median over trials, below it how far they spread: the exact 95 % interval of the median from six trials upwards, the range
# below that. `killed`: the kernel ended it for memory. `≈`: only a part of the file was read before the time ran out; the
# figure is that part scaled to the whole. `( ) †`: rests on excluded trials alone. Published figures are at the published size.

# %%
results.cells

# %% [markdown]
# ## What the verdicts say
# A trial counts when nothing excludes it: a limit that leaked, a cache state that was not reached, a host that was not quiet.

# %%
results.counts

# %%
results.excluded

# %% [markdown]
# ### Were the limits in force?
# Each limit is read back from the kernel, compared with what went through, and driven against by something stronger than the trial.

# %%
results.limits

# %% [markdown]
# ### Cache, quiet, and what held each treatment back

# %%
results.proof

# %% [markdown]
# ## Published and measured
# The rule by which each figure counts as reproduced was fixed before the first run.

# %%
results.claims

# %% [markdown]
# ## Every trial
# One point a trial, a stroke at the median; hollow points are excluded.

# %%
results.strips

# %% [markdown]
# ## Read amplification

# %%
results.amplification

# %% [markdown]
# ## The disk over time
# Lines: the slice's own I/O, from its `io.stat` ten times a second, averaged over half a second (0.2 s where a part is shorter than
# three). Marks: iostat's seconds for the whole disk, each in the middle of its second.

# %%
results.timelines

# %% [markdown]
# ## What was resident
# vmtouch's bars below one another, time downwards. Full colour: all pages of that sixtieth of the file; pale: some.

# %%
results.residency

# %% [markdown]
# ## Read-ahead
# How many pages the kernel asked for at once (`page_cache_ra_order`), and with which flags the mapping faulted (`filemap_fault`).

# %%
results.readahead

# %%
results.faults

# %% [markdown]
# ## The trials

# %%
results.trials

# %% [markdown]
# ## The host

# %%
results.facts

# %% [markdown]
# ## How this was made

# %%
results.making
