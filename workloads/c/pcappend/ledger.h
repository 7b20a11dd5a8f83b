/* The set of a writer's numbers that were found: an upper bound, and the gaps among the last 64. */
#ifndef PCAPPEND_LEDGER_H
#define PCAPPEND_LEDGER_H

#include <stdint.h>

struct ledger {
    uint64_t offered; /* numbers below this were used */
    uint64_t next;    /* no number from here on was found yet */
    uint64_t missing; /* bit n: number next - 1 - n was not found */
    uint64_t lost;    /* missing numbers older than these 64 */
};

enum arrival { IN_ORDER, OUT_OF_ORDER, SEEN_BEFORE };

/* Records one number below `offered`. */
enum arrival ledger_record(struct ledger *ledger, uint64_t number);

/* Returns how many numbers were never found. */
uint64_t ledger_lost(const struct ledger *ledger);

#endif
