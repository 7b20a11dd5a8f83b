/* Delays are kept one by one: at one a millisecond that is 4 KB a second, and quantiles are exact. */
#define _GNU_SOURCE

#include "heartbeat.h"

#include "plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static const uint64_t SECOND_NS = 1000000000;

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static struct timespec timespec_of(uint64_t ns) {
    return (struct timespec){.tv_sec = (time_t)(ns / SECOND_NS), .tv_nsec = (long)(ns % SECOND_NS)};
}

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

static void make_room(struct heartbeat *heart, size_t more) {
    if (heart->count + more <= heart->room) {
        return;
    }
    heart->room = 2 * heart->room + more + 4096;
    heart->late_us = realloc(heart->late_us, heart->room * sizeof *heart->late_us);
    if (heart->late_us == NULL) {
        fail(FAILED, "no memory for %zu beats", heart->room);
    }
}

void heartbeat_hear(struct heartbeat *heart) {
    uint64_t due = 0;
    if (heart->timer < 0 || read(heart->timer, &due, sizeof due) != sizeof due) {
        return;
    }
    uint64_t now = now_ns();
    make_room(heart, due);
    for (; due > 0; due--) {
        uint64_t late_ns = now > heart->next_ns ? now - heart->next_ns : 0;
        heart->late_us[heart->count++] = (uint32_t)(late_ns / 1000);
        heart->next_ns += heart->period_ns;
    }
}

static int compare(const void *one, const void *other) {
    uint32_t left = *(const uint32_t *)one, right = *(const uint32_t *)other;
    return (left > right) - (left < right);
}

static void print_quantile(const struct heartbeat *heart, const char *name, uint64_t in_ten_thousand) {
    if (heart->count == 0) {
        printf("\"%s\":null,", name);
        return;
    }
    size_t rank = (heart->count * in_ten_thousand + 9999) / 10000;
    printf("\"%s\":%" PRIu32 ",", name, heart->late_us[rank - 1]);
}

void heartbeat_print(struct heartbeat *heart) {
    if (heart->timer < 0) {
        return;
    }
    if (heart->count > 0) {
        qsort(heart->late_us, heart->count, sizeof *heart->late_us, compare);
    }
    print_quantile(heart, "heartbeat_p50_us", 5000);
    print_quantile(heart, "heartbeat_p90_us", 9000);
    print_quantile(heart, "heartbeat_p99_us", 9900);
    print_quantile(heart, "heartbeat_p999_us", 9990);
    print_quantile(heart, "heartbeat_p9999_us", 9999);
    print_quantile(heart, "heartbeat_max_us", 10000);
    print_quantile(heart, "gap_max_us", 10000);
    printf("\"heartbeat_count\":%zu,", heart->count);
}
