/* The monotonic clock, clock_gettime(2). */
#ifndef CONTRACT_CLOCK_H
#define CONTRACT_CLOCK_H

#include <stdint.h>
#include <time.h>

#define SECOND_NS 1000000000u

/* Returns nanoseconds since an arbitrary moment, for differences. */
uint64_t now_ns(void);

/* Converts nanoseconds for system calls. */
struct timespec timespec_of(uint64_t ns);

void sleep_us(uint64_t us);

/* Returns the cost of reading the clock, in nanoseconds: the minimum of several attempts, because
 * interruptions can only lengthen an attempt. */
double clock_cost_ns(void);

#endif
