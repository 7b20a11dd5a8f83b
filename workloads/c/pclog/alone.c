/* Being alone with a log: what cutting its file, or making its metadata anew, needs. Nobody is stalled by it: it is
 * asked for first, and whoever opens a writer while it is only asked for cancels it. One word in the metadata says who
 * asks, or is; it is a word and not a lock, so that the dead can be told and the stopped be answered. */
#define _GNU_SOURCE

#include "handle.h"

#include <sched.h>
#include <sys/stat.h>
#include <time.h>

#define ASKED ((uint64_t)1 << PCLOG_IDENTITY_BITS)
#define ALONE ((uint64_t)2 << PCLOG_IDENTITY_BITS)
#define WHO (ASKED - 1)
#define MOST_TRIES 10000

/* Two threads of a process have one identity: this keeps them from taking each other's question for their own. */
static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;

int pclog_alone_end(pclog *log) {
    struct stat status;
    int failed = fstat(log->file, &status);
    if (failed == 0) {
        atomic_store(&log->meta->grown_bytes, (uint64_t)status.st_size);
    }
    atomic_store(&log->meta->alone, 0);
    return failed == 0 ? PCLOG_OK : PCLOG_SYSTEM;
}

int pclog_alone_wait(pclog *log) {
    struct timespec moment = {.tv_nsec = 100000};
    for (;;) {
        uint64_t word = atomic_load(&log->meta->alone);
        if (!(word & ALONE)) {
            return PCLOG_OK;
        }
        enum pclog_life life = pclog_life_of(word & WHO);
        if (life == PCLOG_STOPPED) {
            return PCLOG_BUSY;
        }
        if (life == PCLOG_RUNNING) {
            nanosleep(&moment, NULL);
        } else if (atomic_compare_exchange_strong(&log->meta->alone, &word, ALONE | log->self)) {
            return pclog_alone_end(log);
        }
    }
}

int pclog_alone_cancel(pclog *log) {
    uint64_t word = atomic_load(&log->meta->alone);
    while (word & ASKED && !atomic_compare_exchange_weak(&log->meta->alone, &word, 0)) {
    }
    return pclog_alone_wait(log);
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

/* Of the dead alone: a writer that has taken a slot meanwhile waits until we are done. */
static void free_slots(pclog *log) {
    for (int at = 0; at < PCLOG_WRITERS_MAX; at++) {
        uint64_t owner = atomic_load(&log->meta->slots[at].owner);
        if (owner != 0 && pclog_life_of(owner) == PCLOG_DEAD) {
            atomic_compare_exchange_strong(&log->meta->slots[at].owner, &owner, 0);
        }
    }
}

/* PCLOG_BUSY: somebody else asked, or is alone; try again. */
static int ask(pclog *log) {
    _Atomic uint64_t *alone = &log->meta->alone;
    uint64_t asked = ASKED | log->self, word = atomic_load(alone);
    if (word & ALONE || !atomic_compare_exchange_strong(alone, &word, asked)) {
        return PCLOG_BUSY;
    }
    PCLOG_AT(trim_announced);
    word = asked;
    if (writers_alive(log)) {
        atomic_compare_exchange_strong(alone, &word, 0);
        return PCLOG_LIVE_WRITERS;
    }
    if (atomic_compare_exchange_strong(alone, &word, ALONE | log->self)) {
        free_slots(log);
        return PCLOG_OK;
    }
    return word == 0 ? PCLOG_LIVE_WRITERS : PCLOG_BUSY; /* a writer came, and cancelled */
}

int pclog_alone_begin(pclog *log) {
    int status = PCLOG_BUSY;
    for (int tries = 0; status == PCLOG_BUSY && tries < MOST_TRIES; tries++) {
        status = pclog_alone_wait(log);
        if (status != PCLOG_OK) {
            return status;
        }
        pthread_mutex_lock(&asking);
        status = ask(log);
        pthread_mutex_unlock(&asking);
        if (status == PCLOG_BUSY) {
            sched_yield();
        }
    }
    return status;
}
