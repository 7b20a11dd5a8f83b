/* What pcappend is asked to do. */
#ifndef PCAPPEND_PLAN_H
#define PCAPPEND_PLAN_H

#include <stdbool.h>
#include <stdint.h>

enum fsync_policy { FSYNC_NONE, FSYNC_EVERY, FSYNC_GROUP };

struct method;

struct plan {
    const char *dir;
    const struct method *method;
    uint64_t procs, threads;        /* writers = processes x threads of each */
    uint64_t ops;                   /* records of each writer */
    uint64_t bytes_low, bytes_high; /* length of a record */
    enum fsync_policy fsync;
    uint64_t fsync_every;   /* with FSYNC_EVERY: after so many records of a writer */
    double rate;            /* records a second over all writers; 0 as fast as they go */
    double max_seconds;     /* 0 for no limit */
    uint64_t depth;         /* aio, uring: writes in flight of each writer */
    uint64_t batch_bytes;   /* batch: what is collected before it is written */
    bool framed, ftruncate; /* pclog, as what follows */
    uint64_t window_bytes, growth_bytes, growth_percent, prefault_bytes;
    bool handshake, keep;
};

/* Reads the arguments; ends the process with BAD_ARGUMENTS where they make no sense. */
struct plan plan_read(int count, char **words);

/* The number of writers. */
uint32_t plan_writers(const struct plan *plan);

#endif
