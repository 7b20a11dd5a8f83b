/* The monotonic clock, clock_gettime(2). */
#ifndef CONTRACT_CLOCK_H
#define CONTRACT_CLOCK_H

#include <stdint.h>
#include <time.h>

#define SECOND_NS 1000000000u

/* Nanoseconds since some moment before the machine's start. */
uint64_t now_ns(void);

/* The same as the kernel's calls take it. */
struct timespec timespec_of(uint64_t ns);

/* What one look at the clock costs, in nanoseconds: the least of several tries, since anything may come between. */
double clock_cost_ns(void);

#endif
