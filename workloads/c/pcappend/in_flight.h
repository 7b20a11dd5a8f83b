/* Records that are submitted and not yet complete. Each keeps a slot while the kernel may read
 * it. */
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
    uint32_t *free; /* numbers of the free slots */
    struct slot *slots;
    /* Copies of the records; NULL with one slot, which completes before the caller reuses its
     * record. */
    uint8_t *buffers;
    size_t room;
};

/* Allocates slots for records of up to `most_bytes`; exits on failure. */
struct in_flight in_flight_new(uint32_t depth, size_t most_bytes);
void in_flight_free(struct in_flight *in_flight);

/* Takes a slot for a record; one must be free. */
uint32_t in_flight_take(struct in_flight *in_flight, const uint8_t *record, size_t bytes);

/* Frees a slot whose result is the number of bytes written or a negative errno. After a short write
 * another call appends the remainder. Returns 0 or an errno. */
int in_flight_complete(struct in_flight *in_flight, uint32_t slot, int64_t result, int file);

static inline bool in_flight_is_full(const struct in_flight *in_flight) {
    return in_flight->free_count == 0;
}

static inline bool in_flight_is_empty(const struct in_flight *in_flight) {
    return in_flight->free_count == in_flight->depth;
}

#endif
