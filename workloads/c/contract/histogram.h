/* Delays, counted in buckets that widen with them: exact up to 127 ns, then known to one part in 128, up to 73 minutes.
 * It needs no memory beyond itself, so it may lie in memory that processes share; one writes it, any number add it up.
 */
#ifndef CONTRACT_HISTOGRAM_H
#define CONTRACT_HISTOGRAM_H

#include <stdbool.h>
#include <stdint.h>

enum { HISTOGRAM_FINE = 128, HISTOGRAM_OCTAVES = 35, HISTOGRAM_BUCKETS = HISTOGRAM_FINE * (HISTOGRAM_OCTAVES + 1) };

struct histogram {
    uint64_t count;
    uint64_t max_ns; /* exactly */
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

/* Counts one delay. */
void histogram_add(struct histogram *all, uint64_t ns);

/* Counts those of another too. */
void histogram_merge(struct histogram *all, const struct histogram *other);

/* The delay that so many in ten thousand do not exceed, as the upper end of its bucket; 0 where nothing was counted. */
uint64_t histogram_quantile_ns(const struct histogram *all, uint64_t in_ten_thousand);

/* Prints `"PREFIX_p50_us":..., ... "PREFIX_max_us":...` without a comma at either end, null where nothing was counted.
 */
void histogram_print(const struct histogram *all, const char *prefix);

#endif
