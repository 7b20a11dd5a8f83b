#define _GNU_SOURCE

#include "heartbeat.h"

#include "contract/clock.h"
#include "contract/failure.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/timerfd.h>
#include <unistd.h>

struct heartbeat heartbeat_new(uint64_t period_us) {
    struct heartbeat heart = {.timer = -1, .period_ns = period_us * 1000};
    if (period_us > 0) {
        heart.timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
        if (heart.timer < 0) {
            fail(CANNOT_HERE, "cannot make a timer");
        }
    }
    return heart;
}

void heartbeat_start(struct heartbeat *heart) {
    if (heart->timer < 0) {
        return;
    }
    heart->next_ns = now_ns() + heart->period_ns;
    struct itimerspec times = {timespec_of(heart->period_ns), timespec_of(heart->next_ns)};
    if (timerfd_settime(heart->timer, TFD_TIMER_ABSTIME, &times, NULL) != 0) {
        fail(FAILED, "cannot set the timer");
    }
}

void heartbeat_hear(struct heartbeat *heart) {
    uint64_t due = 0;
    if (heart->timer < 0 || read(heart->timer, &due, sizeof due) != sizeof due) {
        return;
    }
    uint64_t now = now_ns();
    for (; due > 0; due--) {
        histogram_add(&heart->late, now > heart->next_ns ? now - heart->next_ns : 0);
        heart->next_ns += heart->period_ns;
    }
}

void heartbeat_print(const struct heartbeat *heart) {
    if (heart->timer < 0) {
        return;
    }
    histogram_print(&heart->late, "heartbeat");
    if (heart->late.count == 0) {
        printf(",\"gap_max_us\":null,");
    } else {
        printf(",\"gap_max_us\":%.3f,", (double)heart->late.max_ns / 1e3);
    }
    printf("\"heartbeat_count\":%" PRIu64 ",", heart->late.count);
}
