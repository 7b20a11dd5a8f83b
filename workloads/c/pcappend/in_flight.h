/* Records that were submitted and are not done: each in a slot of its own, as long as the kernel may read it. */
#ifndef PCAPPEND_IN_FLIGHT_H
#define PCAPPEND_IN_FLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slot {
    const uint8_t *record;
    size_t bytes;
};

struct in_flight {
    uint32_t depth;
    uint32_t free_count;
    uint32_t *free; /* the numbers of the free slots */
    struct slot *slots;
    uint8_t *buffers; /* NULL with one slot: it is waited for before the caller's record changes */
    size_t room;
};

/* Makes slots for records of up to so many bytes; ends the process without memory. */
struct in_flight in_flight_new(uint32_t depth, size_t most_bytes);
void in_flight_free(struct in_flight *in_flight);

/* Takes a slot for a record; there must be a free one. */
uint32_t in_flight_take(struct in_flight *in_flight, const uint8_t *record, size_t bytes);

/* Gives a slot back after what became of its record: the bytes written or a negative errno. What fell short is written
 * to the file's end by another call. Returns 0 or an errno. */
int in_flight_complete(struct in_flight *in_flight, uint32_t slot, int64_t result, int file);

static inline bool in_flight_is_full(const struct in_flight *in_flight) {
    return in_flight->free_count == 0;
}

static inline bool in_flight_is_empty(const struct in_flight *in_flight) {
    return in_flight->free_count == in_flight->depth;
}

#endif
