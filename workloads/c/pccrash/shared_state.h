/* The processes of one trial: their shared state and their entry points. */
#ifndef PCCRASH_SHARED_STATE_H
#define PCCRASH_SHARED_STATE_H

#include "pclog/pclog.h"
#include "plan.h"

#include <stdatomic.h>
#include <sys/types.h>

#define PATH_ROOM 4096

/* One per writer, which alone writes it. */
struct writer_state {
    _Atomic uint32_t committed; /* records for which pclog_append returned PCLOG_OK */
    _Atomic uint32_t refused;   /* calls that returned PCLOG_BUSY and were repeated */
    _Atomic uint64_t longest_pause_ns;
};

struct shared_state {
    char log[PATH_ROOM];
    int point, signal;
    uint32_t writers;
    _Atomic uint32_t countdown; /* times that the point is still passed, including the last */
    _Atomic uint32_t reached;
    _Atomic uint32_t finish;
    struct writer_state writer_states[64];
};

/* Allocates memory that is shared with processes forked later. */
struct shared_state *shared_state_new(const struct plan *plan);

/* Each runs in a process of its own and returns its exit status. A writer is interrupted at the
 * point if it is the victim. */
int run_writer(struct shared_state *state, uint32_t who, bool victim);
int run_trimmer(struct shared_state *state);
int run_recoverer(struct shared_state *state);
/* Dies after it has reserved a record, before it commits it. */
int run_donor(struct shared_state *state, uint32_t who);

/* Fills a buffer of RECORD_ROOM bytes with one record, and returns its length. */
size_t record_make(unsigned char *to, uint32_t who, uint32_t number);
#define RECORD_ROOM 512

struct reading {
    uint64_t lost, doubled, torn, tombstones;
    struct pclog_report report;
};
/* Compares the log with the counts of committed records. A killed writer may have committed one
 * more. */
struct reading read_back(const struct shared_state *state);

#endif
