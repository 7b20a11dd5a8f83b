#define _GNU_SOURCE

#include "handle.h"

#include <stdlib.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE /* Linux 5.14; with older kernels (EINVAL) pages fault one by one */
#define MADV_POPULATE_WRITE 23
#endif

static struct pclog_window *map(const pclog *log, uint64_t start) {
    struct pclog_window *window = calloc(1, sizeof *window);
    if (window == NULL) {
        return NULL;
    }
    PCLOG_TEST_POINT(before_map);
    size_t bytes = log->options.window_bytes;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, log->file, (off_t)start);
    if (base != MAP_FAILED) {
        window->start = start;
        window->area = (struct pclog_area){.base = base, .bytes = bytes};
        atomic_init(&window->populated_until, start);
        atomic_init(&window->stripe_bytes, PCLOG_STRIPE_MIN);
        if (pclog_area_register(&window->area)) {
            return window;
        }
        munmap(base, bytes);
    }
    free(window);
    return NULL;
}

static void unmap(struct pclog_window *window) {
    pclog_area_unregister(&window->area);
    munmap(window->area.base, window->area.bytes);
    free(window);
}

static struct pclog_window *find_or_map(pclog *log, uint64_t start) {
    for (struct pclog_window *window = log->windows; window != NULL; window = window->next) {
        if (window->start == start) {
            return window;
        }
    }
    struct pclog_window *new = map(log, start);
    if (new != NULL) {
        new->next = log->windows;
        log->windows = new;
    }
    return new;
}

static void drop(pclog *log, struct pclog_window *window) {
    if (window == NULL || --window->holders > 0) {
        return;
    }
    struct pclog_window **link = &log->windows;
    while (*link != window) {
        link = &(*link)->next;
    }
    *link = window->next;
    unmap(window);
}

bool pclog_window_enter(pclog_writer *writer, uint64_t offset) {
    pclog *log = writer->log;
    uint64_t start = offset - offset % log->options.window_bytes;
    if (writer->window != NULL && writer->window->start == start) {
        return true;
    }
    writer->room = 0;
    pthread_mutex_lock(&log->lock);
    struct pclog_window *window = find_or_map(log, start);
    if (window != NULL) {
        window->holders++;
        drop(log, writer->window);
        writer->window = window;
    }
    pthread_mutex_unlock(&log->lock);
    return window != NULL;
}

void pclog_window_leave(pclog_writer *writer) {
    pthread_mutex_lock(&writer->log->lock);
    drop(writer->log, writer->window);
    pthread_mutex_unlock(&writer->log->lock);
    writer->window = NULL;
    writer->room = 0;
}

void pclog_populate(struct pclog_window *window, uint64_t from, uint64_t to) {
    uint64_t ready = atomic_load(&window->populated_until);
    /* The thread whose exchange succeeds populates; the others go on, and fault if faster. */
    do {
        if (ready >= to) {
            return;
        }
    } while (!atomic_compare_exchange_weak(&window->populated_until, &ready, to));
    from = from > ready ? from : ready;
    from -= from % pclog_page_bytes();
    madvise(window->area.base + (from - window->start), to - from, MADV_POPULATE_WRITE);
}
