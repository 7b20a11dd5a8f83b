#define _GNU_SOURCE

#include "futex.h"

#include "contract/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

void futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns) {
    struct timespec timeout = timespec_of(timeout_ns);
    syscall(SYS_futex, word, FUTEX_WAIT, value, timeout_ns == 0 ? NULL : &timeout, NULL, 0);
}

void futex_wake(_Atomic uint32_t *word, int count) {
    syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
}

void futex_wake_all(_Atomic uint32_t *word) {
    futex_wake(word, INT_MAX);
}
