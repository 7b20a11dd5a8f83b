/* The command line of pcappend. */
#ifndef PCAPPEND_PLAN_H
#define PCAPPEND_PLAN_H

#include <stdbool.h>
#include <stdint.h>

enum fsync_policy { FSYNC_NONE, FSYNC_EVERY, FSYNC_GROUP };

struct method;

struct plan {
    const char *dir;
    const struct method *method;
    uint64_t procs, threads;        /* threads per process; the product is the number of writers */
    uint64_t ops;                   /* records per writer */
    uint64_t bytes_low, bytes_high; /* length of a record */
    enum fsync_policy fsync;
    uint64_t fsync_every;   /* with FSYNC_EVERY: records of a writer between two syncs */
    double rate;            /* records per second of all writers; 0 means no pauses */
    double max_seconds;     /* 0 means no limit */
    uint64_t depth;         /* aio, uring: writes in flight per writer */
    uint64_t batch_bytes;   /* batch: bytes collected before they are written */
    bool framed, ftruncate; /* pclog, as the next line */
    uint64_t window_bytes, growth_bytes, growth_percent, prefault_bytes;
    bool handshake, keep;
};

/* Parses the arguments; exits with BAD_ARGUMENTS if they are invalid. */
struct plan plan_read(int count, char **words);

/* Returns the number of writers. */
uint32_t plan_writers(const struct plan *plan);

#endif
