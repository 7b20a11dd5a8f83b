#define _GNU_SOURCE

#include "heartbeat.h"

#include "contract/clock.h"
#include "contract/failure.h"

#include <sys/timerfd.h>
#include <unistd.h>

struct heartbeat heartbeat_new(uint64_t period_us) {
    struct heartbeat heartbeat = {.timer = -1, .period_ns = period_us * 1000};
    if (period_us > 0) {
        heartbeat.timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
        if (heartbeat.timer < 0) {
            fail(CANNOT_HERE, "cannot create a timer");
        }
    }
    return heartbeat;
}

void heartbeat_start(struct heartbeat *heartbeat) {
    if (heartbeat->timer < 0) {
        return;
    }
    heartbeat->next_ns = now_ns() + heartbeat->period_ns;
    struct itimerspec times = {timespec_of(heartbeat->period_ns), timespec_of(heartbeat->next_ns)};
    if (timerfd_settime(heartbeat->timer, TFD_TIMER_ABSTIME, &times, NULL) != 0) {
        fail(FAILED, "cannot set the timer");
    }
}

void heartbeat_poll(struct heartbeat *heartbeat) {
    uint64_t due = 0;
    if (heartbeat->timer < 0 || read(heartbeat->timer, &due, sizeof due) != sizeof due) {
        return;
    }
    uint64_t now = now_ns();
    for (; due > 0; due--) {
        histogram_add(&heartbeat->late, now > heartbeat->next_ns ? now - heartbeat->next_ns : 0);
        heartbeat->next_ns += heartbeat->period_ns;
    }
}

void heartbeat_add_to(struct pagecage_message *message, const struct heartbeat *heartbeat) {
    if (heartbeat->timer < 0) {
        return;
    }
    histogram_add_to(message, &heartbeat->late, "heartbeat");
    if (heartbeat->late.count == 0) {
        pagecage_null(message, "gap_max_us");
    } else {
        pagecage_number(message, "gap_max_us", (double)heartbeat->late.max_ns / 1e3);
    }
    pagecage_count(message, "heartbeat_count", heartbeat->late.count);
}
