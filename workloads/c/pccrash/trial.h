#ifndef PCCRASH_TRIAL_H
#define PCCRASH_TRIAL_H

#include "contract/histogram.h"
#include "shared_state.h"

struct totals {
    uint64_t trials, records, lost, doubled, torn, tombstones;
    uint64_t undecided_trials; /* a hole was left that recovery could not decide when all were done */
    uint64_t stalled_trials;   /* a writer that was not interrupted made no progress */
    uint64_t refused_trials;   /* a writer was answered PCLOG_BUSY while another was stopped */
    uint64_t longest_pause_ns;
    struct histogram recover;
};

/* Kills or stops one process at its point, lets the others go on, recovers beside them and after them, and reads the
 * log. */
void trial_run(const struct plan *plan, struct shared_state *state, uint64_t trial, struct totals *totals);

/* Ends what a trial has running. */
void trial_kill(void);

#endif
