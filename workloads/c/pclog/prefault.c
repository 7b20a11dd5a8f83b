/* The helper thread of a process: keeps pages ahead of the cursor populated, so that appends meet neither faults nor
 * growth. It stands on the windows as a writer does, and sleeps until an append finds less than half of its distance
 * left. Its first stretch is made ready before the process's first writer is open: whoever asks for pages ahead would
 * rather wait there than race with the helper for them. */
#define _GNU_SOURCE

#include "handle.h"

#include <stdlib.h>

#define STEP_BYTES ((uint64_t)256 << 10) /* at a time, so that it can be told to end */

struct pclog_ahead {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool wanted, ended;
    pclog_writer place; /* where it stands; it has no slot and appends nothing */
};

static bool told_to_end(struct pclog_ahead *ahead) {
    pthread_mutex_lock(&ahead->lock);
    bool ended = ahead->ended;
    pthread_mutex_unlock(&ahead->lock);
    return ended;
}

static uint64_t smaller(uint64_t one, uint64_t other) {
    return one < other ? one : other;
}

/* From the cursor as far as it is told to. A disk that is full, or memory that is short, is for the append to find. */
static void go_ahead(struct pclog_ahead *ahead) {
    pclog *log = ahead->place.log;
    uint64_t offset = pclog_end(log), end = offset + log->options.prefault_bytes;
    while (offset < end && !told_to_end(ahead)) {
        if (!pclog_window_enter(&ahead->place, offset) ||
            pclog_grow(log, smaller(offset + STEP_BYTES, end)) != PCLOG_OK) {
            return;
        }
        struct pclog_window *window = ahead->place.window;
        uint64_t until = smaller(smaller(offset + STEP_BYTES, end), window->start + window->area.bytes);
        pclog_populate(window, offset, until);
        offset = until;
    }
}

static void *run(void *context) {
    struct pclog_ahead *ahead = context;
    pthread_mutex_lock(&ahead->lock);
    while (!ahead->ended) {
        if (!ahead->wanted) {
            pthread_cond_wait(&ahead->wake, &ahead->lock);
            continue;
        }
        ahead->wanted = false;
        pthread_mutex_unlock(&ahead->lock);
        go_ahead(ahead);
        pthread_mutex_lock(&ahead->lock);
    }
    pthread_mutex_unlock(&ahead->lock);
    return NULL;
}

void pclog_ahead_want(pclog *log) {
    struct pclog_ahead *ahead = log->ahead;
    pthread_mutex_lock(&ahead->lock);
    ahead->wanted = true;
    pthread_cond_signal(&ahead->wake);
    pthread_mutex_unlock(&ahead->lock);
}

void pclog_ahead_start(pclog *log) {
    struct pclog_ahead *ahead = log->options.prefault_bytes > 0 ? calloc(1, sizeof *ahead) : NULL;
    if (ahead == NULL) {
        return;
    }
    pthread_mutex_init(&ahead->lock, NULL);
    pthread_cond_init(&ahead->wake, NULL);
    ahead->place.log = log;
    go_ahead(ahead);
    if (pthread_create(&ahead->thread, NULL, run, ahead) != 0) { /* without a helper appends do it themselves */
        pclog_window_leave(&ahead->place);
        free(ahead);
        return;
    }
    log->ahead = ahead;
}

void pclog_ahead_stop(pclog *log) {
    struct pclog_ahead *ahead = log->ahead;
    if (ahead == NULL) {
        return;
    }
    pthread_mutex_lock(&ahead->lock);
    ahead->ended = true;
    pthread_cond_signal(&ahead->wake);
    pthread_mutex_unlock(&ahead->lock);
    pthread_join(ahead->thread, NULL);
    pclog_window_leave(&ahead->place);
    pthread_cond_destroy(&ahead->wake);
    pthread_mutex_destroy(&ahead->lock);
    free(ahead);
    log->ahead = NULL;
}
