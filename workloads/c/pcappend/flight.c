#include "flight.h"

#include "contract/failure.h"
#include "method.h"

#include <stdlib.h>
#include <string.h>

struct flight flight_new(uint32_t depth, size_t most_bytes) {
    struct flight flight = {.depth = depth, .free_count = depth, .room = (most_bytes + 4095) / 4096 * 4096};
    flight.free = calloc(depth, sizeof *flight.free);
    flight.slots = calloc(depth, sizeof *flight.slots);
    flight.buffers = depth > 1 ? aligned_alloc(4096, depth * flight.room) : NULL;
    if (flight.free == NULL || flight.slots == NULL || (depth > 1 && flight.buffers == NULL)) {
        fail(FAILED, "no memory for %u records of %zu bytes", depth, most_bytes);
    }
    if (depth > 1) {
        memset(flight.buffers, 0, depth * flight.room); /* its pages are faulted in now */
    }
    for (uint32_t slot = 0; slot < depth; slot++) {
        flight.free[slot] = depth - 1 - slot;
    }
    return flight;
}

void flight_free(struct flight *flight) {
    free(flight->free);
    free(flight->slots);
    free(flight->buffers);
}

uint32_t flight_take(struct flight *flight, const uint8_t *record, size_t bytes) {
    uint32_t slot = flight->free[--flight->free_count];
    if (flight->buffers != NULL) {
        uint8_t *own = flight->buffers + slot * flight->room;
        memcpy(own, record, bytes);
        record = own;
    }
    flight->slots[slot] = (struct slot){record, bytes};
    return slot;
}

int flight_land(struct flight *flight, uint32_t number, int64_t result, int file) {
    struct slot slot = flight->slots[number];
    flight->free[flight->free_count++] = number;
    if (result < 0) {
        return (int)-result;
    }
    return (size_t)result == slot.bytes ? 0 : write_all(file, slot.record + result, slot.bytes - (size_t)result);
}
