#include "in_flight.h"

#include "contract/failure.h"
#include "method.h"

#include <stdlib.h>
#include <string.h>

struct in_flight in_flight_new(uint32_t depth, size_t most_bytes) {
    struct in_flight in_flight = {.depth = depth, .free_count = depth, .room = (most_bytes + 4095) / 4096 * 4096};
    in_flight.free = calloc(depth, sizeof *in_flight.free);
    in_flight.slots = calloc(depth, sizeof *in_flight.slots);
    in_flight.buffers = depth > 1 ? aligned_alloc(4096, depth * in_flight.room) : NULL;
    if (in_flight.free == NULL || in_flight.slots == NULL || (depth > 1 && in_flight.buffers == NULL)) {
        fail(FAILED, "not enough memory for %u records of %zu bytes", depth, most_bytes);
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

uint32_t in_flight_take(struct in_flight *in_flight, const uint8_t *record, size_t bytes) {
    uint32_t slot = in_flight->free[--in_flight->free_count];
    if (in_flight->buffers != NULL) {
        uint8_t *own = in_flight->buffers + slot * in_flight->room;
        memcpy(own, record, bytes);
        record = own;
    }
    in_flight->slots[slot] = (struct slot){record, bytes};
    return slot;
}

int in_flight_complete(struct in_flight *in_flight, uint32_t number, int64_t result, int file) {
    struct slot slot = in_flight->slots[number];
    in_flight->free[in_flight->free_count++] = number;
    if (result < 0) {
        return (int)-result;
    }
    return (size_t)result == slot.bytes ? 0 : write_all(file, slot.record + result, slot.bytes - (size_t)result);
}
