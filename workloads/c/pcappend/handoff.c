/* Handing records to a thread of the process that writes them, as loggers do: each writer fills a ring of its own, without
 * a lock, and the thread writes whatever stands in a ring by one write(2). Not immediate: what is in a ring when the process
 * dies is gone. */
#define _GNU_SOURCE

#include "families.h"
#include "futex.h"
#include "method.h"
#include "mirror.h"

#include "contract/failure.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEAST_RING_BYTES = 1 << 20 };

/* Somebody who waits says so, looks once more, and sleeps; who changes what he waits for then finds the word. */
struct sleeper {
    _Atomic uint32_t asleep;
};

/* Filled at `head` by the writer, emptied at `tail` by the thread; both only grow. */
struct hatch {
    _Alignas(CACHE_LINE) _Atomic uint64_t head;
    _Alignas(CACHE_LINE) _Atomic uint64_t tail;
    struct sleeper writer;
    _Atomic uint32_t error; /* errno of a write that failed, until the writer takes it */
    _Alignas(CACHE_LINE) uint64_t room;
    uint8_t *ring;
};

/* Of one process. */
struct desk {
    _Alignas(CACHE_LINE) struct sleeper clerk;
    _Atomic uint32_t closing;
    uint32_t hatch_count;
    struct hatch *hatches;
    int file;
    pthread_t thread;
};

static void rouse(struct sleeper *sleeper) {
    if (atomic_load(&sleeper->asleep) == 1 && atomic_exchange(&sleeper->asleep, 0) == 1) {
        futex_wake(&sleeper->asleep, 1);
    }
}

static void create_handoff(struct job *job) {
    job->note = "not immediate: a process that dies takes the records with it that its thread has not written yet";
}

/* Writes what one ring holds; false where it was empty. */
static bool serve(struct desk *desk, struct hatch *hatch) {
    uint64_t tail = atomic_load_explicit(&hatch->tail, memory_order_relaxed), head = atomic_load(&hatch->head);
    if (tail == head) {
        return false;
    }
    int error = write_all(desk->file, hatch->ring + tail % hatch->room, head - tail);
    if (error != 0) {
        atomic_store(&hatch->error, (uint32_t)error);
    }
    atomic_store(&hatch->tail, head);
    rouse(&hatch->writer);
    return true;
}

static bool serve_all(struct desk *desk) {
    bool some = false;
    for (uint32_t number = 0; number < desk->hatch_count; number++) {
        some |= serve(desk, &desk->hatches[number]);
    }
    return some;
}

static void *write_what_comes(void *place) {
    struct desk *desk = place;
    while (serve_all(desk) || atomic_load(&desk->closing) == 0) {
        atomic_store(&desk->clerk.asleep, 1);
        if (!serve_all(desk) && atomic_load(&desk->closing) == 0) {
            futex_wait(&desk->clerk.asleep, 1, 0);
        }
        atomic_store(&desk->clerk.asleep, 0);
    }
    return NULL;
}

static struct hatch *make_hatches(uint32_t count, size_t record_bytes) {
    struct hatch *hatches = aligned_alloc(CACHE_LINE, count * sizeof *hatches);
    if (hatches == NULL) {
        fail(FAILED, "no memory for %u rings", count);
    }
    memset(hatches, 0, count * sizeof *hatches);
    for (uint32_t number = 0; number < count; number++) {
        size_t room = 4 * ((record_bytes + 4095) / 4096 * 4096);
        hatches[number].room = room > LEAST_RING_BYTES ? room : LEAST_RING_BYTES;
        hatches[number].ring = mirror_new(hatches[number].room);
    }
    return hatches;
}

static void enter_handoff(struct process *process) {
    struct desk *desk = aligned_alloc(CACHE_LINE, sizeof *desk);
    if (desk == NULL) {
        fail(FAILED, "no memory for a thread that writes");
    }
    memset(desk, 0, sizeof *desk);
    desk->hatch_count = (uint32_t)process->job->plan->threads;
    desk->hatches = make_hatches(desk->hatch_count, process->job->lengths.high);
    desk->file = open_log(process->job, O_WRONLY | O_APPEND);
    process->own = desk;
    if (pthread_create(&desk->thread, NULL, write_what_comes, desk) != 0) {
        fail(FAILED, "cannot start the thread that writes");
    }
}

static void open_handoff(struct writer *writer) {
    struct desk *desk = writer->process->own;
    writer->own = &desk->hatches[writer->number % desk->hatch_count];
    writer->file = open_log(writer->job, O_WRONLY | O_APPEND);
}

/* Waits until the thread has written so far. */
static void await_tail(struct desk *desk, struct hatch *hatch, uint64_t wanted) {
    while (atomic_load(&hatch->tail) < wanted) {
        rouse(&desk->clerk);
        atomic_store(&hatch->writer.asleep, 1);
        if (atomic_load(&hatch->tail) < wanted) {
            futex_wait(&hatch->writer.asleep, 1, 0);
        }
        atomic_store(&hatch->writer.asleep, 0);
    }
}

static int take_error(struct hatch *hatch) {
    return atomic_load_explicit(&hatch->error, memory_order_relaxed) == 0 ? 0 : (int)atomic_exchange(&hatch->error, 0);
}

static int append_handoff(struct writer *writer, const uint8_t *record, size_t bytes) {
    struct desk *desk = writer->process->own;
    struct hatch *hatch = writer->own;
    uint64_t head = atomic_load_explicit(&hatch->head, memory_order_relaxed);
    if (head + bytes > hatch->room) {
        await_tail(desk, hatch, head + bytes - hatch->room);
    }
    memcpy(hatch->ring + head % hatch->room, record, bytes);
    atomic_store(&hatch->head, head + bytes);
    rouse(&desk->clerk);
    return take_error(hatch);
}

static int flush_handoff(struct writer *writer) {
    struct hatch *hatch = writer->own;
    await_tail(writer->process->own, hatch, atomic_load_explicit(&hatch->head, memory_order_relaxed));
    return take_error(hatch);
}

static void leave_handoff(struct process *process) {
    struct desk *desk = process->own;
    atomic_store(&desk->closing, 1);
    rouse(&desk->clerk);
    pthread_join(desk->thread, NULL);
    close(desk->file);
    for (uint32_t number = 0; number < desk->hatch_count; number++) {
        mirror_free(desk->hatches[number].ring, desk->hatches[number].room);
    }
    free(desk->hatches);
    free(desk);
}

const struct method method_handoff = {
    .name = "handoff",
    .says = "through a ring to a thread of the process, which writes: not immediate",
    .create = create_handoff,
    .enter = enter_handoff,
    .open = open_handoff,
    .append = append_handoff,
    .flush = flush_handoff,
    .leave = leave_handoff,
};
