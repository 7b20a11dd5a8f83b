/* A timer that wants to be heard at fixed times, and how late it was heard. */
#ifndef PCSCAN_HEARTBEAT_H
#define PCSCAN_HEARTBEAT_H

#include <stddef.h>
#include <stdint.h>

struct heartbeat {
    int timer; /* -1 without a heartbeat */
    uint64_t period_ns;
    uint64_t next_ns;
    uint32_t *late_us; /* one entry a beat */
    size_t count, room;
};

/* Nanoseconds of the monotonic clock, which the timer goes by. */
uint64_t now_ns(void);

/* Makes a timer that does not tick yet; without one where the period is 0. */
struct heartbeat heartbeat_new(uint64_t period_us);

/* Lets it tick, first in one period. */
void heartbeat_start(struct heartbeat *heart);

/* Counts all beats that are due, each with its own delay: a stall is many late beats and not a single one. */
void heartbeat_hear(struct heartbeat *heart);

/* Prints `"heartbeat_p50_us":..., ...`, null where no beat was due. Sorts the delays. */
void heartbeat_print(struct heartbeat *heart);

#endif
