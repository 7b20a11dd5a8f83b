/* A timer that wants to be heard at fixed times, and how late it was heard. */
#ifndef PCSCAN_HEARTBEAT_H
#define PCSCAN_HEARTBEAT_H

#include "contract/histogram.h"

#include <stdint.h>

struct heartbeat {
    int timer; /* -1 without a heartbeat */
    uint64_t period_ns;
    uint64_t next_ns;
    struct histogram late; /* one entry a beat */
};

/* Makes a timer that does not tick yet; without one where the period is 0. */
struct heartbeat heartbeat_new(uint64_t period_us);

/* Lets it tick, first in one period. */
void heartbeat_start(struct heartbeat *heartbeat);

/* Counts all beats that are due, each with its own delay: a stall is many late beats and not a single one. */
void heartbeat_poll(struct heartbeat *heartbeat);

/* Prints `"heartbeat_p50_us":..., ...`, null where no beat was due. */
void heartbeat_print(const struct heartbeat *heartbeat);

#endif
