/* A heartbeat: a timer with fixed times, and the delays until it was served. */
#ifndef PCSCAN_HEARTBEAT_H
#define PCSCAN_HEARTBEAT_H

#include "contract/histogram.h"

#include <stdint.h>

struct heartbeat {
    int timer; /* -1 without a heartbeat */
    uint64_t period_ns;
    uint64_t next_ns;
    struct histogram late; /* one delay per beat */
};

/* Creates a timer that is not yet armed; none if the period is 0. */
struct heartbeat heartbeat_new(uint64_t period_us);

/* Arms the timer; the first beat is due after one period. */
void heartbeat_start(struct heartbeat *heartbeat);

/* Records all beats that are due, each with its own delay: a stall counts as many late beats, not
 * as one. */
void heartbeat_poll(struct heartbeat *heartbeat);

/* Adds heartbeat_p50_us and others to a message; the values are null if no beat was due. */
void heartbeat_add_to(struct pagecage_message *message, const struct heartbeat *heartbeat);

#endif
