/* A histogram of delays: exact up to 127 ns, then with a relative error below 1/128, up to 73
 * minutes. It contains no pointers, so it may be in shared memory. It has a single writer. */
#ifndef CONTRACT_HISTOGRAM_H
#define CONTRACT_HISTOGRAM_H

#include "pagecage_workload.h"

#include <stdbool.h>
#include <stdint.h>

enum { HISTOGRAM_FINE = 128, HISTOGRAM_OCTAVES = 35, HISTOGRAM_BUCKETS = HISTOGRAM_FINE * (HISTOGRAM_OCTAVES + 1) };

struct histogram {
    uint64_t count;
    uint64_t max_ns; /* exact */
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

/* Adds one delay. */
void histogram_add(struct histogram *all, uint64_t ns);

/* Adds the delays of another histogram. */
void histogram_merge(struct histogram *all, const struct histogram *other);

/* Returns a quantile, given in ten-thousandths, as the upper end of its bucket; 0 if there are no
 * delays. */
uint64_t histogram_quantile_ns(const struct histogram *all, uint64_t in_ten_thousand);

/* Adds PREFIX_p50_us to PREFIX_max_us to a message; the values are null if there are no delays. */
void histogram_add_to(struct pagecage_message *message, const struct histogram *all, const char *prefix);

#endif
