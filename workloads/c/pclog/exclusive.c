/* Exclusive access to a log, required for truncating its file and for rebuilding its metadata. It
 * does not stall writers: access is requested first, and a writer that opens meanwhile cancels the
 * request. One word in the metadata identifies the process that requests or has access. A lock
 * would not do, because dead owners must be recognised and stopped owners reported. */
#define _GNU_SOURCE

#include "handle.h"

#include <sched.h>
#include <sys/stat.h>

#define REQUESTED ((uint64_t)1 << PCLOG_IDENTITY_BITS)
#define EXCLUSIVE ((uint64_t)2 << PCLOG_IDENTITY_BITS)
#define IDENTITY (REQUESTED - 1)
#define MAX_TRIES 10000

/* All threads of a process have one identity; this keeps two of them from mistaking each other's
 * request for theirs. */
static pthread_mutex_t requesting = PTHREAD_MUTEX_INITIALIZER;

int pclog_exclusive_end(pclog *log) {
    struct stat status;
    int failed = fstat(log->file, &status);
    if (failed == 0) {
        atomic_store(&log->meta->grown_bytes, (uint64_t)status.st_size);
    }
    atomic_store(&log->meta->exclusive, 0);
    return failed == 0 ? PCLOG_OK : PCLOG_SYSTEM;
}

int pclog_exclusive_wait(pclog *log) {
    for (;;) {
        uint64_t word = atomic_load(&log->meta->exclusive);
        if (!(word & EXCLUSIVE)) {
            return PCLOG_OK;
        }
        enum pclog_life life = pclog_life_of(word & IDENTITY);
        if (life == PCLOG_STOPPED) {
            return PCLOG_BUSY;
        }
        if (life == PCLOG_RUNNING) {
            pclog_sleep_us(100);
        } else if (atomic_compare_exchange_strong(&log->meta->exclusive, &word, EXCLUSIVE | log->self)) {
            return pclog_exclusive_end(log);
        }
    }
}

int pclog_exclusive_cancel(pclog *log) {
    uint64_t word = atomic_load(&log->meta->exclusive);
    while (word & REQUESTED && !atomic_compare_exchange_weak(&log->meta->exclusive, &word, 0)) {
    }
    return pclog_exclusive_wait(log);
}

static bool writers_alive(const pclog *log) {
    for (int at = 0; at < PCLOG_WRITERS_MAX; at++) {
        uint64_t owner = atomic_load(&log->meta->slots[at].owner);
        if (owner != 0 && pclog_life_of(owner) != PCLOG_DEAD) {
            return true;
        }
    }
    return false;
}

/* A writer that has taken a slot meanwhile waits until exclusive access ends. */
static void free_slots_of_dead(pclog *log) {
    for (int at = 0; at < PCLOG_WRITERS_MAX; at++) {
        uint64_t owner = atomic_load(&log->meta->slots[at].owner);
        if (owner != 0 && pclog_life_of(owner) == PCLOG_DEAD) {
            atomic_compare_exchange_strong(&log->meta->slots[at].owner, &owner, 0);
        }
    }
}

/* Returns PCLOG_BUSY if another process has requested or has access; try again. */
static int request(pclog *log) {
    _Atomic uint64_t *holder = &log->meta->exclusive;
    uint64_t requested = REQUESTED | log->self, word = atomic_load(holder);
    if (word & EXCLUSIVE || !atomic_compare_exchange_strong(holder, &word, requested)) {
        return PCLOG_BUSY;
    }
    PCLOG_TEST_POINT(trim_announced);
    word = requested;
    if (writers_alive(log)) {
        atomic_compare_exchange_strong(holder, &word, 0);
        return PCLOG_LIVE_WRITERS;
    }
    if (atomic_compare_exchange_strong(holder, &word, EXCLUSIVE | log->self)) {
        free_slots_of_dead(log);
        return PCLOG_OK;
    }
    return word == 0 ? PCLOG_LIVE_WRITERS : PCLOG_BUSY; /* a new writer has cancelled it */
}

int pclog_exclusive_begin(pclog *log) {
    int status = PCLOG_BUSY;
    for (int tries = 0; status == PCLOG_BUSY && tries < MAX_TRIES; tries++) {
        status = pclog_exclusive_wait(log);
        if (status != PCLOG_OK) {
            return status;
        }
        pthread_mutex_lock(&requesting);
        status = request(log);
        pthread_mutex_unlock(&requesting);
        if (status == PCLOG_BUSY) {
            sched_yield();
        }
    }
    return status;
}
