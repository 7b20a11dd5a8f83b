#include "failure.h"

#include <stddef.h>

static _Atomic uint32_t *shared_word;

void fail_together(_Atomic uint32_t *word) {
    shared_word = word;
    pagecage_report_failures_if(fail_may_report);
}

bool fail_may_report(void) {
    return shared_word == NULL || atomic_exchange(shared_word, 1) == 0;
}
