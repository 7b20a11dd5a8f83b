/* Tests of records. */
#include "check.h"
#include "pcappend/record.h"

#include <string.h>

/* A buffer that is stamped repeatedly equals a new one. */
static void stamps_leave_nothing_behind(void) {
    struct lengths lengths = {16, 3000};
    uint8_t *pattern = record_pattern(lengths.high), used[3000], fresh[3000];
    CHECK(pattern != NULL);
    record_fill(used, sizeof used, 9);
    for (uint64_t sequence = 0; sequence < 5000; sequence++) {
        size_t bytes = record_bytes(&lengths, 9, sequence);
        CHECK(bytes >= lengths.low && bytes <= lengths.high);
        record_stamp(used, bytes, 9, sequence);
        record_fill(fresh, sizeof fresh, 9);
        record_stamp(fresh, bytes, 9, sequence);
        CHECK(memcmp(used, fresh, bytes) == 0);
        CHECK(record_is_whole(used, bytes, 9, sequence, pattern));
        CHECK(!record_is_whole(used, bytes, 9, sequence + 1, pattern) || bytes <= 512);
    }
    free(pattern);
}

static void labels_come_back(void) {
    uint8_t record[16];
    static const uint32_t WRITERS[] = {0, 1, 255, 256, 1023};
    static const uint64_t SEQUENCES[] = {0, 1, 65535, 1 << 30, RECORD_SEQUENCES - 1};
    for (int at = 0; at < 25; at++) {
        uint32_t writer = 0;
        uint64_t sequence = 0;
        record_fill(record, sizeof record, WRITERS[at % 5]);
        record_stamp(record, sizeof record, WRITERS[at % 5], SEQUENCES[at / 5]);
        CHECK(record_label(record, &writer, &sequence));
        CHECK_SAME(writer, WRITERS[at % 5]);
        CHECK_SAME(sequence, SEQUENCES[at / 5]);
        record[at % 16] ^= 1;
        CHECK(!record_label(record, &writer, &sequence));
    }
}

static void lengths_reach_both_ends(void) {
    struct lengths lengths = {16, 20};
    size_t times[21] = {0};
    for (uint64_t sequence = 0; sequence < 1000; sequence++) {
        times[record_bytes(&lengths, 3, sequence)]++;
    }
    for (size_t bytes = 16; bytes <= 20; bytes++) {
        CHECK(times[bytes] > 100);
    }
}

void test_record(void) {
    stamps_leave_nothing_behind();
    labels_come_back();
    lengths_reach_both_ends();
}
