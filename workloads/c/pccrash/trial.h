#ifndef PCCRASH_TRIAL_H
#define PCCRASH_TRIAL_H

#include "contract/histogram.h"
#include "shared_state.h"

struct totals {
    uint64_t trials, records, lost, doubled, torn, tombstones;
    uint64_t undecided_trials; /* after all processes ended, recovery still left a hole */
    uint64_t stalled_trials;   /* a writer other than the victim made no progress */
    uint64_t refused_trials;   /* a writer received PCLOG_BUSY while the victim was stopped */
    uint64_t longest_pause_ns;
    struct histogram recover;
};

/* Kills or stops one process at the trial's point while the others continue. Recovers the log
 * beside them and after them, and reads it back. */
void trial_run(const struct plan *plan, struct shared_state *state, uint64_t trial, struct totals *totals);

/* Kills the processes of the current trial. */
void trial_kill(void);

#endif
