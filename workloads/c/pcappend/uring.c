/* io_uring(7). Each record is submitted immediately; a writer waits only when --depth are in
 * flight. */
#define _GNU_SOURCE

#include "method_tables.h"
#include "in_flight.h"
#include "ring.h"

#include "contract/failure.h"

#include <fcntl.h>
#include <stdlib.h>

struct uring {
    struct in_flight in_flight;
    struct ring ring;
};

static int reap_uring(struct writer *writer) {
    struct uring *own = writer->own;
    struct completion done = ring_wait(&own->ring);
    return in_flight_complete(writer, (uint32_t)done.user_data, done.result);
}

/* The offset -1 means the current file position, which O_APPEND moves to the end. */
static int submit_uring(struct writer *writer, uint32_t slot) {
    struct uring *own = writer->own;
    struct io_uring_sqe entry = {
        .opcode = IORING_OP_WRITE,
        .fd = writer->file,
        .off = UINT64_MAX,
        .addr = (uint64_t)(uintptr_t)own->in_flight.slots[slot].record,
        .len = (uint32_t)own->in_flight.slots[slot].bytes,
        .user_data = slot,
    };
    int error = ring_submit(&own->ring, &entry);
    return error == 0 ? 0 : in_flight_complete(writer, slot, -error);
}

static void open_uring(struct writer *writer) {
    struct uring *own = malloc(sizeof *own);
    if (own == NULL) {
        fail(FAILED, "not enough memory for an io_uring");
    }
    own->ring = ring_new((uint32_t)writer->job->plan->depth);
    own->in_flight = in_flight_new(writer->job);
    own->in_flight.submit = submit_uring;
    own->in_flight.reap = reap_uring;
    writer->own = own;
    writer->file = open_log(writer->job, O_WRONLY | O_APPEND);
}

static void close_uring(struct writer *writer) {
    struct uring *own = writer->own;
    ring_free(&own->ring);
    in_flight_free(&own->in_flight);
    free(own);
}

const struct method method_uring = {
    .name = "uring",
    .summary = "io_uring with O_APPEND, --depth writes in flight",
    .open = open_uring,
    .append = in_flight_append,
    .flush = in_flight_flush,
    .close = close_uring,
};
