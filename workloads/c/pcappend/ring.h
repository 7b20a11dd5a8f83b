/* An io_uring(7) by its system calls: one submission at a time, submitted at once. */
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

/* Makes one for so many in flight; ends the process with CANNOT_HERE where the kernel has none, or forbids it. */
struct ring ring_new(uint32_t depth);
void ring_free(struct ring *ring);

/* Submits one; 0 or an errno. */
int ring_submit(struct ring *ring, const struct io_uring_sqe *entry);

/* What became of one that is done: its user_data, and the bytes written or a negative errno. */
struct completion {
    uint64_t user_data;
    int32_t result;
};

/* Waits for it. */
struct completion ring_wait(struct ring *ring);

#endif
