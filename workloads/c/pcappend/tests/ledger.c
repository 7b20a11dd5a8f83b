/* Tests of the ledger against one that remembers every number. */
#include "check.h"
#include "pcappend/ledger.h"

#include <stdbool.h>

enum { NUMBERS = 400 };

static uint64_t state = 88172645463325252u;

static uint64_t draw(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static void in_order_nothing_is_missing(void) {
    struct ledger ledger = {.offered = NUMBERS};
    for (uint64_t number = 0; number < NUMBERS; number++) {
        CHECK(ledger_record(&ledger, number) == IN_ORDER);
    }
    CHECK_SAME(ledger_lost(&ledger), 0);
}

static void each_gap_is_counted(void) {
    for (uint64_t gap = 0; gap < NUMBERS - 1; gap++) {
        struct ledger ledger = {.offered = NUMBERS};
        CHECK(ledger_record(&ledger, gap) == IN_ORDER);
        CHECK_SAME(ledger_lost(&ledger), NUMBERS - 1);
        CHECK(ledger_record(&ledger, NUMBERS - 1) == IN_ORDER);
        CHECK_SAME(ledger_lost(&ledger), NUMBERS - 2);
    }
}

/* Draws numbers from near the front, some never and some twice: up to 64 numbers back, both ledgers
 * agree. */
static void it_agrees_with_a_full_one(void) {
    for (int round = 0; round < 2000; round++) {
        struct ledger ledger = {.offered = NUMBERS};
        bool seen[NUMBERS] = {false};
        uint64_t front = 0, distinct = 0;
        while (front < NUMBERS - 40) {
            uint64_t number = front + draw(30) - (front > 30 ? draw(30) : 0);
            enum arrival arrival = ledger_record(&ledger, number);
            CHECK(arrival == (seen[number] ? SEEN_BEFORE : number >= front ? IN_ORDER : OUT_OF_ORDER));
            distinct += !seen[number];
            seen[number] = true;
            front = number >= front ? number + 1 : front;
            CHECK_SAME(ledger_lost(&ledger), NUMBERS - distinct);
        }
    }
}

void test_ledger(void) {
    in_order_nothing_is_missing();
    each_gap_is_counted();
    it_agrees_with_a_full_one();
}
