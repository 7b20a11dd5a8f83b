/* An io_uring(7) by direct system calls, with one submission per call. */
#ifndef PCAPPEND_RING_H
#define PCAPPEND_RING_H

#include <linux/io_uring.h>
#include <stddef.h>
#include <stdint.h>

struct ring {
    int file;
    uint32_t *sq_tail, *sq_mask, *sq_array;
    uint32_t *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *completions;
    void *queues;
    size_t queues_bytes, entries_bytes;
};

/* Creates a ring for `depth` requests; exits with CANNOT_HERE if the kernel lacks or forbids it. */
struct ring ring_new(uint32_t depth);
void ring_free(struct ring *ring);

/* Submits one request; returns 0 or an errno. */
int ring_submit(struct ring *ring, const struct io_uring_sqe *entry);

struct completion {
    uint64_t user_data;
    int32_t result; /* bytes written, or a negative errno */
};

/* Waits for the next completion. */
struct completion ring_wait(struct ring *ring);

#endif
