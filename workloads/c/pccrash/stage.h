/* What the processes of one trial share, and what they do. */
#ifndef PCCRASH_STAGE_H
#define PCCRASH_STAGE_H

#include "pclog/pclog.h"
#include "plan.h"

#include <stdatomic.h>
#include <sys/types.h>

#define PATH_ROOM 4096

/* One a writer, by whom alone it is written. */
struct part {
    _Atomic uint32_t committed; /* records for which pclog_append said PCLOG_OK */
    _Atomic uint32_t refused;   /* times that PCLOG_BUSY was answered: it then tries again */
    _Atomic uint64_t longest_pause_ns;
};

struct stage {
    char log[PATH_ROOM];
    int point, signal;
    uint32_t writers;
    _Atomic uint32_t countdown; /* the point is met so many times before it counts */
    _Atomic uint32_t reached;
    _Atomic uint32_t finish;
    struct part parts[64];
};

/* Memory that processes which are forked later share. */
struct stage *stage_new(const struct plan *plan);

/* Each returns its exit status, and runs in a process of its own. The first of them is interrupted at the point if
 * `victim`. */
int act_writer(struct stage *stage, uint32_t who, bool victim);
int act_trimmer(struct stage *stage);
int act_recoverer(struct stage *stage);
/* Dies with a record reserved and not committed. */
int act_donor(struct stage *stage, uint32_t who);

/* Records, and reading them back. */
size_t record_make(unsigned char *to, uint32_t who, uint32_t number);
#define RECORD_ROOM 512

struct reading {
    uint64_t lost, doubled, torn, tombstones;
    struct pclog_report report;
};
/* Compares the log with what was committed. A writer that was killed may have committed one more. */
struct reading stage_read(const struct stage *stage);

#endif
