/* Which numbers of one writer were seen: up to where, and which of the last 64 are missing. */
#ifndef PCAPPEND_LEDGER_H
#define PCAPPEND_LEDGER_H

#include <stdint.h>

struct ledger {
    uint64_t offered; /* numbers below it were given out */
    uint64_t next;    /* numbers from it on were not seen yet */
    uint64_t missing; /* bit n: number next - 1 - n was not seen */
    uint64_t lost;    /* missing, and further back than that */
};

enum arrival { IN_ORDER, OUT_OF_ORDER, SEEN_BEFORE };

/* Notes one number below `offered`. */
enum arrival ledger_record(struct ledger *ledger, uint64_t number);

/* How many were never seen. */
uint64_t ledger_lost(const struct ledger *ledger);

#endif
