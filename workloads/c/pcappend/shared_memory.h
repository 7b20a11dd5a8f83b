/* Anonymous memory shared by the processes of one run, allocated before fork(2). */
#ifndef PCAPPEND_SHARED_MEMORY_H
#define PCAPPEND_SHARED_MEMORY_H

#include "contract/histogram.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>

enum { ERRNO_COUNT = 136, CACHE_LINE = 64 };

/* The results of one writer, which alone writes them; they are read when it has ended. */
struct outcome {
    _Alignas(CACHE_LINE) uint64_t started_ns, ended_ns;
    uint64_t offered; /* attempted records */
    uint64_t offered_bytes;
    uint64_t failed; /* calls that did not append their complete record */
    uint64_t errors[ERRNO_COUNT];
    uint64_t syncs; /* calls that this writer made itself */
    uint64_t minor_faults, major_faults, voluntary_switches, involuntary_switches;
    struct histogram call; /* duration of a sample of the calls */
    struct histogram late; /* with --rate: from the due time to the end of the call and its sync */
    struct histogram sync; /* time spent waiting for a sync */
};

/* State for syncs that serve several writers at once (sync.c). */
struct sync_group {
    _Alignas(CACHE_LINE) _Atomic uint32_t begun, ended;
    _Atomic uint32_t busy;
    _Atomic uint32_t error; /* errno of the last failed sync */
};

/* The locks of the mapped methods; a run uses one of them. */
struct locks {
    _Alignas(CACHE_LINE) pthread_mutex_t mutex;
    sem_t semaphore;
    _Atomic uint32_t futex;
};

struct shared_memory {
    uint32_t writers;
    _Atomic uint32_t waiting;     /* writers that wait for the gate */
    _Atomic uint32_t gate;        /* 1 when open */
    _Atomic uint64_t released_ns; /* when the gate opened; --rate counts from here */
    _Atomic uint64_t deadline_ns; /* 0 without --max-seconds */
    _Atomic uint32_t stop;
    _Atomic uint32_t failure_reported; /* for fail_together() */
    struct sync_group group;
    struct locks locks;
    _Alignas(CACHE_LINE) _Atomic uint64_t cursor; /* offset of the next record */
    struct outcome outcomes[];
};

/* Allocates it zeroed and populated: a page fault there would count as a fault of a writer. */
struct shared_memory *shared_memory_new(uint32_t writers);

/* Waits until the gate opens. */
void gate_wait(struct shared_memory *memory);

/* Opens the gate for all writers at once, and sets the deadline. */
void gate_open(struct shared_memory *memory, double max_seconds);

#endif
