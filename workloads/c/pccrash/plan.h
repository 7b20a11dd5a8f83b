/* The command line of pccrash. */
#ifndef PCCRASH_PLAN_H
#define PCCRASH_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "pclog/test_points.h"

struct plan {
    const char *dir;
    int point;  /* pclog_points means all, in turn */
    int signal; /* 0 means SIGKILL and SIGSTOP, in turn */
    uint64_t trials;
    uint32_t writers;
    uint64_t seed;
    double max_seconds; /* 0 means no limit */
    bool handshake;
};

struct plan plan_read(int count, char **words);

/* Return the point and the signal of one trial: trials go through all points, then change the
 * signal. */
int plan_point(const struct plan *plan, uint64_t trial);
int plan_signal(const struct plan *plan, uint64_t trial);

#endif
