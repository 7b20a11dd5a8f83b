/* Populating pages in stripes. Each process has its own page tables, so its first store into a page
 * costs a fault even if another process has already filled that page. For records of about a page
 * this is most of the cost. Populating a stripe with one call (MADV_POPULATE_WRITE of madvise(2))
 * costs a fraction of a fault per page, but all at once. The stripe therefore stays small while the
 * log grows slowly, to keep pauses short, and doubles while it grows fast, to reduce the total. */
#define _GNU_SOURCE

#include "handle.h"

#include <time.h>

/* Thresholds of slow and fast growth. They are far apart because a writer that waits for a CPU
 * seems slow. */
#define SLOW_BYTES_PER_US 32
#define FAST_BYTES_PER_US 128
#define STRIPE_MAX ((uint64_t)256 << 10)

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t next_stripe(struct pclog_window *window) {
    uint64_t now = now_ns(), last = atomic_exchange(&window->stripe_ns, now);
    uint64_t bytes = atomic_load(&window->stripe_bytes);
    if (bytes * 1000 / FAST_BYTES_PER_US > now - last) {
        bytes = min_u64(2 * bytes, STRIPE_MAX);
    } else if (bytes * 1000 / SLOW_BYTES_PER_US < now - last && bytes > PCLOG_STRIPE_MIN) {
        bytes /= 2;
    }
    atomic_store(&window->stripe_bytes, bytes);
    return bytes;
}

/* With a helper the room ends early, so that an append wakes the helper when half is left. */
static uint64_t end_of_room(const pclog *log, uint64_t need, uint64_t ready) {
    uint64_t half = log->options.prefault_bytes / 2;
    if (log->prefaulter == NULL || ready < need + half) {
        return ready;
    }
    return ready - half;
}

void pclog_populate_ahead(pclog_writer *writer, uint64_t offset, size_t bytes) {
    struct pclog_window *window = writer->window;
    pclog *log = writer->log;
    uint64_t grown = atomic_load_explicit(&log->meta->grown_bytes, memory_order_acquire);
    uint64_t end = min_u64(grown, window->start + window->area.bytes);
    uint64_t need = min_u64(offset + bytes, end), ready = atomic_load(&window->populated_until);
    if (log->prefaulter != NULL && ready < need + log->options.prefault_bytes / 2) {
        pclog_prefaulter_wake(log);
    }
    if (need > ready) {
        ready = min_u64(need - need % PCLOG_STRIPE_MIN + next_stripe(window), end);
        ready = ready > need ? ready : need;
        pclog_populate(window, offset, ready);
    }
    writer->base = window->area.base;
    writer->from = window->start;
    writer->room = min_u64(end_of_room(log, need, ready), end) - window->start;
}
