#include "histogram.h"

#include <stddef.h>
#include <stdio.h>

static const int FINE_BITS = 7;
_Static_assert(HISTOGRAM_FINE == 1 << 7, "HISTOGRAM_FINE is 2^FINE_BITS");

/* Each octave above the first 128 values has 128 buckets: the seven bits after the leading one. */
static size_t bucket_of(uint64_t ns) {
    if (ns < HISTOGRAM_FINE) {
        return ns;
    }
    int shift = 63 - __builtin_clzll(ns) - FINE_BITS;
    size_t bucket = (size_t)(shift + 1) * HISTOGRAM_FINE + (size_t)((ns >> shift) - HISTOGRAM_FINE);
    return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

static uint64_t upper_end(size_t bucket) {
    if (bucket < HISTOGRAM_FINE) {
        return bucket;
    }
    size_t shift = bucket / HISTOGRAM_FINE - 1;
    return ((HISTOGRAM_FINE + bucket % HISTOGRAM_FINE + 1) << shift) - 1;
}

void histogram_add(struct histogram *all, uint64_t ns) {
    all->count++;
    all->buckets[bucket_of(ns)]++;
    all->max_ns = ns > all->max_ns ? ns : all->max_ns;
}

void histogram_merge(struct histogram *all, const struct histogram *other) {
    all->count += other->count;
    all->max_ns = other->max_ns > all->max_ns ? other->max_ns : all->max_ns;
    for (size_t bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++) {
        all->buckets[bucket] += other->buckets[bucket];
    }
}

uint64_t histogram_quantile_ns(const struct histogram *all, uint64_t in_ten_thousand) {
    uint64_t rank = (all->count * in_ten_thousand + 9999) / 10000, passed = 0;
    for (size_t bucket = 0; rank > 0 && bucket < HISTOGRAM_BUCKETS - 1; bucket++) {
        passed += all->buckets[bucket];
        if (passed >= rank) {
            return upper_end(bucket) < all->max_ns ? upper_end(bucket) : all->max_ns;
        }
    }
    return all->max_ns;
}

void histogram_add_to(struct pagecage_message *message, const struct histogram *all, const char *prefix) {
    static const struct {
        const char *name;
        uint64_t in_ten_thousand;
    } QUANTILES[] = {{"p50", 5000}, {"p90", 9000}, {"p99", 9900}, {"p999", 9990}, {"p9999", 9999}, {"max", 10000}};
    for (size_t at = 0; at < sizeof QUANTILES / sizeof *QUANTILES; at++) {
        char key[64];
        snprintf(key, sizeof key, "%s_%s_us", prefix, QUANTILES[at].name);
        if (all->count == 0) {
            pagecage_null(message, key);
        } else {
            pagecage_number(message, key, (double)histogram_quantile_ns(all, QUANTILES[at].in_ten_thousand) / 1e3);
        }
    }
}
