/* Records that are submitted and not yet complete. Each keeps a slot while the kernel may read
 * it. */
#ifndef PCAPPEND_IN_FLIGHT_H
#define PCAPPEND_IN_FLIGHT_H

#include "method.h"

struct slot {
    const uint8_t *record;
    size_t bytes;
};

/* The first member of a method's data in writer->own. */
struct in_flight {
    int (*submit)(struct writer *writer, uint32_t slot); /* 0 or an errno */
    int (*reap)(struct writer *writer);                  /* waits for one; 0 or an errno */
    uint32_t depth;
    uint32_t free_count;
    uint32_t *free; /* numbers of the free slots */
    struct slot *slots;
    /* Copies of the records; NULL with one slot, which completes before the caller reuses its
     * record. */
    uint8_t *buffers;
    size_t room;
};

/* Allocates --depth slots; exits on failure. The caller sets submit and reap. */
struct in_flight in_flight_new(const struct job *job);
void in_flight_free(struct in_flight *in_flight);

/* append() and flush() of a method. With one slot each record completes before append() returns. */
int in_flight_append(struct writer *writer, const uint8_t *record, size_t bytes);
int in_flight_flush(struct writer *writer);

/* Frees a slot whose result is the number of bytes written or a negative errno. After a short write
 * another call appends the remainder. Returns 0 or an errno. */
int in_flight_complete(struct writer *writer, uint32_t slot, int64_t result);

#endif
