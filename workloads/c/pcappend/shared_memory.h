/* What the processes of one run share: anonymous memory, made before the fork. */
#ifndef PCAPPEND_SHARED_MEMORY_H
#define PCAPPEND_SHARED_MEMORY_H

#include "contract/histogram.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>

enum { ERRNO_COUNT = 136, CACHE_LINE = 64 };

/* What became of one writer's records. Only the writer writes here; the rest is read when it is done. */
struct outcome {
    _Alignas(CACHE_LINE) uint64_t started_ns, ended_ns;
    uint64_t offered; /* records that were tried */
    uint64_t offered_bytes;
    uint64_t failed; /* calls that did not append their record, or not all of it */
    uint64_t errors[ERRNO_COUNT];
    uint64_t syncs; /* that it began itself */
    uint64_t minor_faults, major_faults, voluntary_switches, involuntary_switches;
    struct histogram call; /* of a sample of the calls, one call's own time */
    struct histogram late; /* with --rate: from when a call was due to when it was done, its sync included */
    struct histogram sync; /* how long a writer waited for one */
};

/* One sync for all that wait, see sync.c. */
struct sync_group {
    _Alignas(CACHE_LINE) _Atomic uint32_t begun, ended;
    _Atomic uint32_t busy;
    _Atomic uint32_t error; /* errno of the last that failed */
};

/* What the mapped methods lock, of which a run uses one. */
struct locks {
    _Alignas(CACHE_LINE) pthread_mutex_t mutex;
    sem_t semaphore;
    _Atomic uint32_t futex;
};

struct shared_memory {
    uint32_t writers;
    _Atomic uint32_t waiting;     /* writers that wait at the gate */
    _Atomic uint32_t gate;        /* 1 when it is open */
    _Atomic uint64_t released_ns; /* when it was opened: what --rate counts from */
    _Atomic uint64_t deadline_ns; /* 0 without --max-seconds */
    _Atomic uint32_t stop;
    _Atomic uint32_t failure_reported; /* see fail_together() */
    struct sync_group group;
    struct locks locks;
    _Alignas(CACHE_LINE) _Atomic uint64_t cursor; /* where the next record goes, for methods that reserve */
    struct outcome outcomes[];
};

/* Makes it, all zero and its pages touched: a fault there would be counted as a writer's. */
struct shared_memory *shared_memory_new(uint32_t writers);

/* Stands at the gate until it opens. */
void gate_wait(struct shared_memory *memory);

/* Opens it for all at once, and sets the time to stop. */
void gate_open(struct shared_memory *memory, double max_seconds);

#endif
