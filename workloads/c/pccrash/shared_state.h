/* What the processes of one trial share, and what they do. */
#ifndef PCCRASH_SHARED_STATE_H
#define PCCRASH_SHARED_STATE_H

#include "pclog/pclog.h"
#include "plan.h"

#include <stdatomic.h>
#include <sys/types.h>

#define PATH_ROOM 4096

/* One a writer, by whom alone it is written. */
struct writer_state {
    _Atomic uint32_t committed; /* records for which pclog_append said PCLOG_OK */
    _Atomic uint32_t refused;   /* times that PCLOG_BUSY was answered: it then tries again */
    _Atomic uint64_t longest_pause_ns;
};

struct shared_state {
    char log[PATH_ROOM];
    int point, signal;
    uint32_t writers;
    _Atomic uint32_t countdown; /* the point is met so many times before it counts */
    _Atomic uint32_t reached;
    _Atomic uint32_t finish;
    struct writer_state writer_states[64];
};

/* Memory that processes which are forked later share. */
struct shared_state *shared_state_new(const struct plan *plan);

/* Each returns its exit status, and runs in a process of its own. The first of them is interrupted at the point if
 * `victim`. */
int run_writer(struct shared_state *state, uint32_t who, bool victim);
int run_trimmer(struct shared_state *state);
int run_recoverer(struct shared_state *state);
/* Dies with a record reserved and not committed. */
int run_donor(struct shared_state *state, uint32_t who);

/* Records, and reading them back. */
size_t record_make(unsigned char *to, uint32_t who, uint32_t number);
#define RECORD_ROOM 512

struct reading {
    uint64_t lost, doubled, torn, tombstones;
    struct pclog_report report;
};
/* Compares the log with what was committed. A writer that was killed may have committed one more. */
struct reading read_back(const struct shared_state *state);

#endif
