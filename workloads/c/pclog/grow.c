/* Growing the file. fallocate(2) never shortens a file and is idempotent, so any process may call
 * it at any time. ftruncate(2) would cut off space that a faster process has added, so processes
 * take turns; the turn of a dead process is taken over. */
#define _GNU_SOURCE

#include "handle.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#define RELEASE_ATTEMPTS 64
#define SPINS_PER_LIFE_CHECK 64 /* reading /proc takes as long as the owner needs to finish */

static void raise_to(_Atomic uint64_t *word, uint64_t value) {
    uint64_t now = atomic_load(word);
    while (now < value && !atomic_compare_exchange_weak(word, &now, value)) {
    }
}

/* Writers never shorten the file, so a file shorter than it was grown has been truncated. */
static int require_not_truncated(pclog *log, uint64_t grown) {
    struct stat status;
    if (fstat(log->file, &status) != 0) {
        return PCLOG_SYSTEM;
    }
    if ((uint64_t)status.st_size >= grown) {
        return PCLOG_OK;
    }
    atomic_store(&log->truncated, true);
    return PCLOG_TRUNCATED;
}

static uint64_t target_of(const pclog *log, uint64_t grown, uint64_t end) {
    uint64_t share = grown / 100 * log->options.growth_percent;
    uint64_t step = share > log->options.growth_bytes ? share : log->options.growth_bytes;
    return pclog_round_up(grown + step > end ? grown + step : end, pclog_page_bytes());
}

static int allocate(int file, uint64_t from, uint64_t to) {
    int failed;
    do {
        failed = fallocate(file, 0, (off_t)from, (off_t)(to - from));
    } while (failed != 0 && errno == EINTR);
    return failed == 0 ? PCLOG_OK : pclog_errno_status();
}

static int grow_by_fallocate(pclog *log, uint64_t grown, uint64_t end) {
    uint64_t target = target_of(log, grown, end);
    int status = allocate(log->file, grown, target);
    if (status == PCLOG_NO_SPACE) { /* there may still be room for this record */
        target = pclog_round_up(end, pclog_page_bytes());
        status = allocate(log->file, grown, target);
    }
    PCLOG_TEST_POINT(after_grow);
    if (status == PCLOG_OK) {
        raise_to(&log->meta->grown_bytes, target);
    }
    return status;
}

/* Only for the process whose turn it is. */
static int grow_by_ftruncate(pclog *log, uint64_t end) {
    struct stat status;
    uint64_t grown = atomic_load(&log->meta->grown_bytes);
    if (grown >= end) {
        return PCLOG_OK;
    }
    uint64_t target = target_of(log, grown, end);
    if (fstat(log->file, &status) != 0 ||
        ((uint64_t)status.st_size < target && ftruncate(log->file, (off_t)target) != 0)) {
        return pclog_errno_status();
    }
    PCLOG_TEST_POINT(after_grow);
    raise_to(&log->meta->grown_bytes, target);
    return PCLOG_OK;
}

static int take_turn(pclog *log, uint64_t end) {
    _Atomic uint64_t *turn = &log->meta->grower;
    for (unsigned spin = 1; atomic_load(&log->meta->grown_bytes) < end; spin++) {
        uint64_t whose = 0;
        if (atomic_compare_exchange_strong(turn, &whose, log->self)) {
            int status = grow_by_ftruncate(log, end);
            atomic_store(turn, 0);
            return status;
        }
        if (spin % SPINS_PER_LIFE_CHECK != 0) {
            sched_yield();
            continue;
        }
        enum pclog_life life = pclog_life_of(whose);
        if (life == PCLOG_STOPPED) {
            return PCLOG_BUSY;
        }
        if (life == PCLOG_DEAD) {
            atomic_compare_exchange_strong(turn, &whose, 0);
        }
    }
    return PCLOG_OK;
}

int pclog_grow(pclog *log, uint64_t end) {
    uint64_t grown = atomic_load(&log->meta->grown_bytes);
    if (atomic_load_explicit(&log->truncated, memory_order_relaxed)) {
        return PCLOG_TRUNCATED;
    }
    if (end <= grown) {
        return PCLOG_OK;
    }
    if (end > PCLOG_END_MAX) {
        return PCLOG_TOO_LARGE;
    }
    int status = require_not_truncated(log, grown);
    if (status != PCLOG_OK) {
        return status;
    }
    PCLOG_TEST_POINT(before_grow);
    return log->options.growth == PCLOG_FTRUNCATE ? take_turn(log, end) : grow_by_fallocate(log, grown, end);
}

/* On a full disk the writers that reserved later fail as well and release their space first. The
 * cursor then soon returns to this reservation, unless one of them was killed or stopped. */
int pclog_grow_or_release(pclog *log, uint64_t offset, uint64_t bytes) {
    int status = pclog_grow(log, offset + bytes);
    for (int tries = 0; status != PCLOG_OK && tries < RELEASE_ATTEMPTS; tries++) {
        int error = errno;
        if (pclog_release(log, offset, bytes)) {
            errno = error;
            return status;
        }
        pclog_sleep_us(100);
        status = pclog_grow(log, offset + bytes);
    }
    return status;
}
