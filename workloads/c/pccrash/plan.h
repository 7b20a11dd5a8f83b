/* What is asked for on the command line. */
#ifndef PCCRASH_PLAN_H
#define PCCRASH_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "pclog/test_points.h"

struct plan {
    const char *dir;
    int point;  /* pclog_points: all in turn */
    int signal; /* 0: SIGKILL and SIGSTOP in turn */
    uint64_t trials;
    uint32_t writers;
    uint64_t seed;
    double max_seconds; /* 0 without a limit */
    bool handshake;
};

struct plan plan_read(int count, char **words);

/* Of one trial: points change quickest, then the signals. */
int plan_point(const struct plan *plan, uint64_t trial);
int plan_signal(const struct plan *plan, uint64_t trial);

#endif
