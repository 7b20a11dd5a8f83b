#define _GNU_SOURCE

#include "clock.h"

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

struct timespec timespec_of(uint64_t ns) {
    return (struct timespec){.tv_sec = (time_t)(ns / SECOND_NS), .tv_nsec = (long)(ns % SECOND_NS)};
}

void sleep_us(uint64_t us) {
    struct timespec duration = timespec_of(us * 1000);
    nanosleep(&duration, NULL);
}

double clock_cost_ns(void) {
    enum { TRIES = 20, READS = 200 };
    uint64_t minimum = UINT64_MAX;
    for (int attempt = 0; attempt < TRIES; attempt++) {
        uint64_t begin = now_ns(), last = begin;
        for (int reading = 0; reading < READS; reading++) {
            last = now_ns();
        }
        minimum = last - begin < minimum ? last - begin : minimum;
    }
    return (double)minimum / READS;
}
