#define _GNU_SOURCE

#include "ring.h"

#include "contract/failure.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *map(int file, size_t bytes, uint64_t offset) {
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, (off_t)offset);
    if (address == MAP_FAILED) {
        fail(FAILED, "cannot map the queues of io_uring: %s", strerror(errno));
    }
    return address;
}

static uint32_t *word(const struct ring *ring, uint32_t offset) {
    return (uint32_t *)((char *)ring->queues + offset);
}

struct ring ring_new(uint32_t depth) {
    struct io_uring_params params = {0};
    struct ring ring = {.file = (int)syscall(SYS_io_uring_setup, depth, &params)};
    if (ring.file < 0) {
        fail(CANNOT_HERE, "io_uring is not available here (io_uring_setup): %s", strerror(errno));
    }
    if ((params.features & IORING_FEAT_SINGLE_MMAP) == 0) {
        fail(CANNOT_HERE, "the io_uring of this kernel is too old: Linux 5.4 or later is needed");
    }
    size_t completions_end = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    size_t array_end = params.sq_off.array + params.sq_entries * sizeof(uint32_t);
    ring.queues_bytes = completions_end > array_end ? completions_end : array_end;
    ring.entries_bytes = params.sq_entries * sizeof(struct io_uring_sqe);
    ring.queues = map(ring.file, ring.queues_bytes, IORING_OFF_SQ_RING);
    ring.entries = map(ring.file, ring.entries_bytes, IORING_OFF_SQES);
    ring.sq_tail = word(&ring, params.sq_off.tail);
    ring.sq_mask = word(&ring, params.sq_off.ring_mask);
    ring.sq_array = word(&ring, params.sq_off.array);
    ring.cq_head = word(&ring, params.cq_off.head);
    ring.cq_tail = word(&ring, params.cq_off.tail);
    ring.cq_mask = word(&ring, params.cq_off.ring_mask);
    ring.completions = (struct io_uring_cqe *)((char *)ring.queues + params.cq_off.cqes);
    return ring;
}

void ring_free(struct ring *ring) {
    munmap(ring->entries, ring->entries_bytes);
    munmap(ring->queues, ring->queues_bytes);
    close(ring->file);
}

static int enter(struct ring *ring, unsigned submit, unsigned wait) {
    long done = 0;
    do {
        done = syscall(SYS_io_uring_enter, ring->file, submit, wait, wait > 0 ? IORING_ENTER_GETEVENTS : 0, NULL, 0);
    } while (done < 0 && errno == EINTR);
    return done < 0 ? errno : 0;
}

int ring_submit(struct ring *ring, const struct io_uring_sqe *entry) {
    uint32_t tail = *ring->sq_tail, slot = tail & *ring->sq_mask;
    ring->entries[slot] = *entry;
    ring->sq_array[slot] = slot;
    __atomic_store_n(ring->sq_tail, tail + 1, __ATOMIC_RELEASE);
    int error = 0;
    do {
        error = enter(ring, 1, 0);
    } while (error == EAGAIN || error == EBUSY);
    return error;
}

struct completion ring_wait(struct ring *ring) {
    uint32_t head = *ring->cq_head;
    while (__atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE) == head) {
        int error = enter(ring, 0, 1);
        if (error != 0) {
            fail(FAILED, "a write in flight did not complete (io_uring_enter): %s", strerror(error));
        }
    }
    const struct io_uring_cqe *completion = &ring->completions[head & *ring->cq_mask];
    struct completion done = {completion->user_data, completion->res};
    __atomic_store_n(ring->cq_head, head + 1, __ATOMIC_RELEASE);
    return done;
}
