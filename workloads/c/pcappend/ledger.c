#include "ledger.h"

static uint64_t ones(uint64_t word) {
    return (uint64_t)__builtin_popcountll(word);
}

/* Advances by `count` numbers, of which all but the last are missing. */
static void advance(struct ledger *ledger, uint64_t count) {
    if (count < 64) {
        ledger->lost += ones(ledger->missing >> (64 - count));
        ledger->missing = ledger->missing << count | ((UINT64_C(1) << count) - 2);
    } else {
        ledger->lost += ones(ledger->missing) + (count - 64);
        ledger->missing = ~UINT64_C(1);
    }
    ledger->next += count;
}

enum arrival ledger_record(struct ledger *ledger, uint64_t number) {
    if (number >= ledger->next) {
        advance(ledger, number - ledger->next + 1);
        return IN_ORDER;
    }
    uint64_t back = ledger->next - 1 - number;
    if (back >= 64 || (ledger->missing >> back & 1) == 0) {
        return SEEN_BEFORE;
    }
    ledger->missing &= ~(UINT64_C(1) << back);
    return OUT_OF_ORDER;
}

uint64_t ledger_lost(const struct ledger *ledger) {
    return ledger->lost + ones(ledger->missing) + (ledger->offered - ledger->next);
}
