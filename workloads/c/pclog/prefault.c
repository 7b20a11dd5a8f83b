/* The helper thread of a process. It keeps pages ahead of the cursor populated, so that appends
 * cause neither page faults nor growth. It uses windows as a writer does, and sleeps until an
 * append finds less than half of the configured distance populated. The first pages are populated
 * before the process's first writer is open: otherwise that writer would race with the helper for
 * them. */
#define _GNU_SOURCE

#include "handle.h"

#include <stdlib.h>

#define STEP_BYTES ((uint64_t)256 << 10) /* between two checks whether to end */

struct pclog_prefaulter {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool wanted, ending;
    pclog_writer position; /* only its window is used; it has no slot and appends nothing */
};

static bool should_end(struct pclog_prefaulter *prefaulter) {
    pthread_mutex_lock(&prefaulter->lock);
    bool ending = prefaulter->ending;
    pthread_mutex_unlock(&prefaulter->lock);
    return ending;
}

/* Populates prefault_bytes from the cursor on. Errors are left to the appends, which meet them
 * too. */
static void populate_ahead(struct pclog_prefaulter *prefaulter) {
    pclog *log = prefaulter->position.log;
    uint64_t offset = pclog_end(log), end = offset + log->options.prefault_bytes;
    while (offset < end && !should_end(prefaulter)) {
        if (!pclog_window_enter(&prefaulter->position, offset) ||
            pclog_grow(log, min_u64(offset + STEP_BYTES, end)) != PCLOG_OK) {
            return;
        }
        struct pclog_window *window = prefaulter->position.window;
        uint64_t until = min_u64(min_u64(offset + STEP_BYTES, end), window->start + window->area.bytes);
        pclog_populate(window, offset, until);
        offset = until;
    }
}

static void *run(void *context) {
    struct pclog_prefaulter *prefaulter = context;
    pthread_mutex_lock(&prefaulter->lock);
    while (!prefaulter->ending) {
        if (!prefaulter->wanted) {
            pthread_cond_wait(&prefaulter->wake, &prefaulter->lock);
            continue;
        }
        prefaulter->wanted = false;
        pthread_mutex_unlock(&prefaulter->lock);
        populate_ahead(prefaulter);
        pthread_mutex_lock(&prefaulter->lock);
    }
    pthread_mutex_unlock(&prefaulter->lock);
    return NULL;
}

void pclog_prefaulter_wake(pclog *log) {
    struct pclog_prefaulter *prefaulter = log->prefaulter;
    pthread_mutex_lock(&prefaulter->lock);
    prefaulter->wanted = true;
    pthread_cond_signal(&prefaulter->wake);
    pthread_mutex_unlock(&prefaulter->lock);
}

void pclog_prefaulter_start(pclog *log) {
    struct pclog_prefaulter *prefaulter = log->options.prefault_bytes > 0 ? calloc(1, sizeof *prefaulter) : NULL;
    if (prefaulter == NULL) {
        return;
    }
    pthread_mutex_init(&prefaulter->lock, NULL);
    pthread_cond_init(&prefaulter->wake, NULL);
    prefaulter->position.log = log;
    populate_ahead(prefaulter);
    if (pthread_create(&prefaulter->thread, NULL, run, prefaulter) != 0) {
        /* Without a helper appends populate pages themselves. */
        pclog_window_leave(&prefaulter->position);
        free(prefaulter);
        return;
    }
    log->prefaulter = prefaulter;
}

void pclog_prefaulter_stop(pclog *log) {
    struct pclog_prefaulter *prefaulter = log->prefaulter;
    if (prefaulter == NULL) {
        return;
    }
    pthread_mutex_lock(&prefaulter->lock);
    prefaulter->ending = true;
    pthread_cond_signal(&prefaulter->wake);
    pthread_mutex_unlock(&prefaulter->lock);
    pthread_join(prefaulter->thread, NULL);
    pclog_window_leave(&prefaulter->position);
    pthread_cond_destroy(&prefaulter->wake);
    pthread_mutex_destroy(&prefaulter->lock);
    free(prefaulter);
    log->prefaulter = NULL;
}
