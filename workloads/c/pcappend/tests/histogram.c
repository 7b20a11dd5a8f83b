/* Tests of the histogram against sorted numbers. */
#include "check.h"
#include "contract/histogram.h"

#include <string.h>

enum { COUNT = 20000 };

static int compare(const void *one, const void *other) {
    uint64_t left = *(const uint64_t *)one, right = *(const uint64_t *)other;
    return (left > right) - (left < right);
}

/* Returns a random number below 2^40 whose logarithm is uniformly distributed. */
static uint64_t draw(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    uint64_t bits = 1 + (*state >> 58) % 40;
    return (*state >> 20) & ((UINT64_C(1) << bits) - 1);
}

static void quantiles_are_near(void) {
    static uint64_t numbers[COUNT];
    static struct histogram all;
    uint64_t state = 1;
    memset(&all, 0, sizeof all);
    for (int at = 0; at < COUNT; at++) {
        numbers[at] = draw(&state);
        histogram_add(&all, numbers[at]);
    }
    qsort(numbers, COUNT, sizeof *numbers, compare);
    CHECK_SAME(all.count, COUNT);
    CHECK_SAME(all.max_ns, numbers[COUNT - 1]);
    for (uint64_t part = 1; part <= 10000; part++) {
        uint64_t exact = numbers[(COUNT * part + 9999) / 10000 - 1];
        uint64_t quantile = histogram_quantile_ns(&all, part);
        CHECK(quantile >= exact && quantile - exact <= exact / HISTOGRAM_FINE);
    }
}

static void merged_is_as_if_added(void) {
    static struct histogram both, one, other;
    uint64_t state = 7;
    for (int at = 0; at < COUNT; at++) {
        uint64_t number = draw(&state);
        histogram_add(&both, number);
        histogram_add(at % 3 == 0 ? &one : &other, number);
    }
    histogram_merge(&one, &other);
    CHECK(memcmp(&one, &both, sizeof one) == 0);
}

static void small_ones_are_exact_and_huge_ones_kept(void) {
    static struct histogram all;
    for (uint64_t number = 1; number <= 100; number++) {
        histogram_add(&all, number);
    }
    CHECK_SAME(histogram_quantile_ns(&all, 5000), 50);
    CHECK_SAME(histogram_quantile_ns(&all, 10000), 100);
    histogram_add(&all, UINT64_MAX);
    CHECK_SAME(histogram_quantile_ns(&all, 10000), UINT64_MAX);
    static struct histogram none;
    CHECK_SAME(histogram_quantile_ns(&none, 5000), 0);
}

void test_histogram(void) {
    quantiles_are_near();
    merged_is_as_if_added();
    small_ones_are_exact_and_huge_ones_kept();
}
