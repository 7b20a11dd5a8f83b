/* io_uring(7). Each record is submitted immediately; a writer waits only when --depth are in
 * flight. */
#define _GNU_SOURCE

#include "method_tables.h"
#include "in_flight.h"
#include "method.h"
#include "ring.h"

#include "contract/failure.h"

#include <fcntl.h>
#include <stdlib.h>

struct uring {
    struct ring ring;
    struct in_flight in_flight;
};

static void open_uring(struct writer *writer) {
    struct uring *own = malloc(sizeof *own);
    if (own == NULL) {
        fail(FAILED, "not enough memory for an io_uring");
    }
    own->ring = ring_new((uint32_t)writer->job->plan->depth);
    own->in_flight = in_flight_new((uint32_t)writer->job->plan->depth, writer->job->lengths.high);
    writer->own = own;
    writer->file = open_log(writer->job, O_WRONLY | O_APPEND);
}

static int reap_uring(struct writer *writer) {
    struct uring *own = writer->own;
    struct completion done = ring_wait(&own->ring);
    return in_flight_complete(&own->in_flight, (uint32_t)done.user_data, done.result, writer->file);
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
    return error == 0 ? 0 : in_flight_complete(&own->in_flight, slot, -error, writer->file);
}

static int append_uring(struct writer *writer, const uint8_t *record, size_t bytes) {
    struct uring *own = writer->own;
    int earlier = in_flight_is_full(&own->in_flight) ? reap_uring(writer) : 0;
    int error = submit_uring(writer, in_flight_take(&own->in_flight, record, bytes));
    if (error == 0 && own->in_flight.depth == 1) {
        error = reap_uring(writer);
    }
    return earlier != 0 ? earlier : error;
}

static int flush_uring(struct writer *writer) {
    struct uring *own = writer->own;
    int error = 0;
    while (!in_flight_is_empty(&own->in_flight)) {
        int one = reap_uring(writer);
        error = one != 0 ? one : error;
    }
    return error;
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
    .append = append_uring,
    .flush = flush_uring,
    .close = close_uring,
};
