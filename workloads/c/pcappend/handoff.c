/* Handing records to a thread of the process that writes them, as loggers do. Each writer fills a
 * ring buffer of its own without a lock, and the thread writes the content of a ring with one
 * write(2). Not immediate: records that are in a ring when the process dies are lost. */
#define _GNU_SOURCE

#include "method_tables.h"
#include "futex.h"
#include "method.h"
#include "ring_buffer.h"

#include "contract/failure.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MIN_RING_BYTES = 1 << 20 };

/* A thread that waits sets `asleep`, checks its condition again, and sleeps. The thread that
 * changes the condition then finds the word set. */
struct sleeper {
    _Atomic uint32_t asleep;
};

/* Filled at `head` by the writer and emptied at `tail` by the thread; both only increase. */
struct queue {
    _Alignas(CACHE_LINE) _Atomic uint64_t head;
    _Alignas(CACHE_LINE) _Atomic uint64_t tail;
    struct sleeper writer;
    _Atomic uint32_t error; /* errno of a failed write, until the writer has taken it */
    _Alignas(CACHE_LINE) uint64_t room;
    uint8_t *ring;
};

/* The writing thread of one process. */
struct consumer {
    _Alignas(CACHE_LINE) struct sleeper itself;
    _Atomic uint32_t closing;
    uint32_t queue_count;
    struct queue *queues;
    int file;
    pthread_t thread;
};

static void wake(struct sleeper *sleeper) {
    if (atomic_load(&sleeper->asleep) == 1 && atomic_exchange(&sleeper->asleep, 0) == 1) {
        futex_wake(&sleeper->asleep, 1);
    }
}

static void create_handoff(struct job *job) {
    job->note = "not immediate: a process that dies takes the records with it that its thread has not written yet";
}

/* Writes the content of one ring; false if it was empty. */
static bool drain(struct consumer *consumer, struct queue *queue) {
    uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed), head = atomic_load(&queue->head);
    if (tail == head) {
        return false;
    }
    int error = write_all(consumer->file, queue->ring + tail % queue->room, head - tail);
    if (error != 0) {
        atomic_store(&queue->error, (uint32_t)error);
    }
    atomic_store(&queue->tail, head);
    wake(&queue->writer);
    return true;
}

static bool drain_all(struct consumer *consumer) {
    bool some = false;
    for (uint32_t number = 0; number < consumer->queue_count; number++) {
        some |= drain(consumer, &consumer->queues[number]);
    }
    return some;
}

static void *write_loop(void *context) {
    struct consumer *consumer = context;
    while (drain_all(consumer) || atomic_load(&consumer->closing) == 0) {
        atomic_store(&consumer->itself.asleep, 1);
        if (!drain_all(consumer) && atomic_load(&consumer->closing) == 0) {
            futex_wait(&consumer->itself.asleep, 1, 0);
        }
        atomic_store(&consumer->itself.asleep, 0);
    }
    return NULL;
}

static struct queue *new_queues(uint32_t count, size_t record_bytes) {
    struct queue *queues = aligned_alloc(CACHE_LINE, count * sizeof *queues);
    if (queues == NULL) {
        fail(FAILED, "not enough memory for %u rings", count);
    }
    memset(queues, 0, count * sizeof *queues);
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE); /* a ring is mapped twice, one behind the other */
    for (uint32_t number = 0; number < count; number++) {
        size_t room = 4 * ((record_bytes + page_bytes - 1) / page_bytes * page_bytes);
        queues[number].room = room > MIN_RING_BYTES ? room : MIN_RING_BYTES;
        queues[number].ring = ring_buffer_new(queues[number].room);
    }
    return queues;
}

static void enter_handoff(struct process *process) {
    struct consumer *consumer = aligned_alloc(CACHE_LINE, sizeof *consumer);
    if (consumer == NULL) {
        fail(FAILED, "not enough memory for the writing thread");
    }
    memset(consumer, 0, sizeof *consumer);
    consumer->queue_count = (uint32_t)process->job->plan->threads;
    consumer->queues = new_queues(consumer->queue_count, process->job->lengths.high);
    consumer->file = open_log(process->job, O_WRONLY | O_APPEND);
    process->own = consumer;
    if (pthread_create(&consumer->thread, NULL, write_loop, consumer) != 0) {
        fail(FAILED, "cannot start the writing thread");
    }
}

static void open_handoff(struct writer *writer) {
    struct consumer *consumer = writer->process->own;
    writer->own = &consumer->queues[writer->number % consumer->queue_count];
    writer->file = open_log(writer->job, O_WRONLY | O_APPEND);
}

/* Waits until the thread has written up to `wanted`. */
static void wait_for_tail(struct consumer *consumer, struct queue *queue, uint64_t wanted) {
    while (atomic_load(&queue->tail) < wanted) {
        wake(&consumer->itself);
        atomic_store(&queue->writer.asleep, 1);
        if (atomic_load(&queue->tail) < wanted) {
            futex_wait(&queue->writer.asleep, 1, 0);
        }
        atomic_store(&queue->writer.asleep, 0);
    }
}

static int take_error(struct queue *queue) {
    return atomic_load_explicit(&queue->error, memory_order_relaxed) == 0 ? 0 : (int)atomic_exchange(&queue->error, 0);
}

static int append_handoff(struct writer *writer, const uint8_t *record, size_t bytes) {
    struct consumer *consumer = writer->process->own;
    struct queue *queue = writer->own;
    uint64_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);
    if (head + bytes > queue->room) {
        wait_for_tail(consumer, queue, head + bytes - queue->room);
    }
    memcpy(queue->ring + head % queue->room, record, bytes);
    atomic_store(&queue->head, head + bytes);
    wake(&consumer->itself);
    return take_error(queue);
}

static int flush_handoff(struct writer *writer) {
    struct queue *queue = writer->own;
    wait_for_tail(writer->process->own, queue, atomic_load_explicit(&queue->head, memory_order_relaxed));
    return take_error(queue);
}

static void leave_handoff(struct process *process) {
    struct consumer *consumer = process->own;
    atomic_store(&consumer->closing, 1);
    wake(&consumer->itself);
    pthread_join(consumer->thread, NULL);
    close(consumer->file);
    for (uint32_t number = 0; number < consumer->queue_count; number++) {
        ring_buffer_free(consumer->queues[number].ring, consumer->queues[number].room);
    }
    free(consumer->queues);
    free(consumer);
}

const struct method method_handoff = {
    .name = "handoff",
    .summary = "through a ring buffer to a writing thread of the process: not immediate",
    .create = create_handoff,
    .enter = enter_handoff,
    .open = open_handoff,
    .append = append_handoff,
    .flush = flush_handoff,
    .leave = leave_handoff,
};
