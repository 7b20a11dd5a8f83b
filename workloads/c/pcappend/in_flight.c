#include "in_flight.h"

#include "contract/failure.h"

#include <stdlib.h>
#include <string.h>

struct in_flight in_flight_new(const struct job *job) {
    uint32_t depth = (uint32_t)job->plan->depth;
    size_t max_bytes = job->lengths.high;
    struct in_flight in_flight = {.depth = depth, .free_count = depth, .room = (max_bytes + 4095) / 4096 * 4096};
    in_flight.free = calloc(depth, sizeof *in_flight.free);
    in_flight.slots = calloc(depth, sizeof *in_flight.slots);
    in_flight.buffers = depth > 1 ? aligned_alloc(4096, depth * in_flight.room) : NULL;
    if (in_flight.free == NULL || in_flight.slots == NULL || (depth > 1 && in_flight.buffers == NULL)) {
        fail(FAILED, "not enough memory for %u records of %zu bytes", depth, max_bytes);
    }
    if (depth > 1) {
        memset(in_flight.buffers, 0, depth * in_flight.room); /* populates its pages */
    }
    for (uint32_t slot = 0; slot < depth; slot++) {
        in_flight.free[slot] = depth - 1 - slot;
    }
    return in_flight;
}

void in_flight_free(struct in_flight *in_flight) {
    free(in_flight->free);
    free(in_flight->slots);
    free(in_flight->buffers);
}

static uint32_t take_slot(struct in_flight *in_flight, const uint8_t *record, size_t bytes) {
    uint32_t slot = in_flight->free[--in_flight->free_count];
    if (in_flight->buffers != NULL) {
        uint8_t *own = in_flight->buffers + slot * in_flight->room;
        memcpy(own, record, bytes);
        record = own;
    }
    in_flight->slots[slot] = (struct slot){record, bytes};
    return slot;
}

int in_flight_append(struct writer *writer, const uint8_t *record, size_t bytes) {
    struct in_flight *in_flight = writer->own;
    int earlier = in_flight->free_count == 0 ? in_flight->reap(writer) : 0;
    int error = in_flight->submit(writer, take_slot(in_flight, record, bytes));
    if (error == 0 && in_flight->depth == 1) {
        error = in_flight->reap(writer);
    }
    return earlier != 0 ? earlier : error;
}

int in_flight_flush(struct writer *writer) {
    struct in_flight *in_flight = writer->own;
    int error = 0;
    while (in_flight->free_count < in_flight->depth) {
        int one = in_flight->reap(writer);
        error = one != 0 ? one : error;
    }
    return error;
}

int in_flight_complete(struct writer *writer, uint32_t number, int64_t result) {
    struct in_flight *in_flight = writer->own;
    struct slot slot = in_flight->slots[number];
    in_flight->free[in_flight->free_count++] = number;
    if (result < 0) {
        return (int)-result;
    }
    return (size_t)result == slot.bytes ? 0
                                        : write_all(writer->file, slot.record + result, slot.bytes - (size_t)result);
}
