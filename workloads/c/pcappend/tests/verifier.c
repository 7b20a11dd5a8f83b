/* Tests of the verifier on files with known faults. */
#define _GNU_SOURCE

#include "check.h"
#include "pcappend/verify.h"

#include <string.h>

enum { WRITERS = 3, RECORDS = 200, ROOM = 1 << 22 };

static char path[4096];

/* A file under construction. */
struct draft {
    struct lengths lengths;
    size_t block_bytes;
    struct offer offers[WRITERS];
    uint8_t *bytes;
    size_t count;
};

static struct draft draft_new(size_t low, size_t high, size_t block_bytes) {
    struct draft draft = {.lengths = {low, high}, .block_bytes = block_bytes, .bytes = malloc(ROOM)};
    CHECK(draft.bytes != NULL);
    return draft;
}

/* Adds one record as its writer would write it. */
static void put(struct draft *draft, uint32_t writer, uint64_t sequence) {
    size_t bytes = record_bytes(&draft->lengths, writer, sequence);
    size_t whole = (bytes + draft->block_bytes - 1) / draft->block_bytes * draft->block_bytes;
    CHECK(draft->count + whole <= ROOM);
    uint8_t *place = draft->bytes + draft->count;
    memset(place, 0, whole);
    record_fill(place, bytes, writer);
    record_stamp(place, bytes, writer, sequence);
    draft->count += whole;
}

/* Counts a record as attempted, whether or not it is in the file. */
static void offer(struct draft *draft, uint32_t writer, uint64_t sequence) {
    draft->offers[writer].records++;
    draft->offers[writer].bytes += record_bytes(&draft->lengths, writer, sequence);
}

/* All records of all writers, except record `left_out` of writer 1 (RECORDS for none). */
static struct draft whole(size_t low, size_t high, size_t block_bytes, uint64_t left_out) {
    struct draft draft = draft_new(low, high, block_bytes);
    for (uint64_t sequence = 0; sequence < RECORDS; sequence++) {
        for (uint32_t writer = 0; writer < WRITERS; writer++) {
            offer(&draft, writer, sequence);
            if (writer != 1 || sequence != left_out) {
                put(&draft, writer, sequence);
            }
        }
    }
    return draft;
}

/* Writes the file, verifies it, and frees the draft. */
static struct findings judge(struct draft *draft) {
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fwrite(draft->bytes, 1, draft->count, file) == draft->count && fclose(file) == 0);
    struct verifier *verifier = verifier_new(&draft->lengths, draft->block_bytes, WRITERS, draft->offers);
    CHECK(verifier != NULL && verifier_read(verifier, path));
    struct findings found = verifier_conclude(verifier);
    verifier_free(verifier);
    free(draft->bytes);
    return found;
}

static const struct {
    size_t low, high, block_bytes;
} SHAPES[] = {{1, 1, 1},     {3, 3, 1},   {15, 15, 1},   {16, 16, 1},     {128, 128, 1},     {4095, 4095, 1},
              {16, 6000, 1}, {1, 1, 512}, {15, 15, 512}, {128, 128, 512}, {4095, 4095, 512}, {16, 6000, 512}};

static void whole_files_are_good(void) {
    for (size_t shape = 0; shape < sizeof SHAPES / sizeof *SHAPES; shape++) {
        struct draft draft = whole(SHAPES[shape].low, SHAPES[shape].high, SHAPES[shape].block_bytes, RECORDS);
        uint64_t bytes = draft.offers[0].bytes + draft.offers[1].bytes + draft.offers[2].bytes;
        struct findings found = judge(&draft);
        CHECK(findings_are_good(&found));
        CHECK_SAME(found.records, WRITERS * RECORDS);
        CHECK_SAME(found.record_bytes, bytes);
    }
}

static void a_lost_record_is_seen(void) {
    for (size_t shape = 0; shape < sizeof SHAPES / sizeof *SHAPES; shape++) {
        for (uint64_t left_out = 0; left_out < RECORDS; left_out += RECORDS - 1) {
            struct draft draft = whole(SHAPES[shape].low, SHAPES[shape].high, SHAPES[shape].block_bytes, left_out);
            size_t bytes = record_bytes(&draft.lengths, 1, left_out);
            struct findings found = judge(&draft);
            CHECK_SAME(found.lost_records, 1);
            CHECK_SAME(found.lost_bytes, bytes);
            CHECK_SAME(found.torn_records + found.stray_bytes + found.hole_bytes + found.doubled_records, 0);
            CHECK(!findings_are_good(&found));
        }
    }
}

static void a_doubled_record_is_seen(void) {
    for (size_t shape = 0; shape < sizeof SHAPES / sizeof *SHAPES; shape++) {
        struct draft draft = whole(SHAPES[shape].low, SHAPES[shape].high, SHAPES[shape].block_bytes, RECORDS);
        put(&draft, 2, RECORDS - 1);
        struct findings found = judge(&draft);
        CHECK_SAME(found.doubled_records, 1);
        CHECK_SAME(found.lost_records, 0);
        CHECK(!findings_are_good(&found));
    }
}

/* The first half of a record, followed by another record. A part of a label alone is not a torn
 * record. */
static void a_torn_record_is_seen(void) {
    for (size_t shape = 1; shape < 7; shape++) {
        struct draft draft = whole(SHAPES[shape].low, SHAPES[shape].high, 1, 0);
        size_t bytes = record_bytes(&draft.lengths, 1, 0), half = bytes / 2;
        bool has_label = bytes >= RECORD_LABELLED_BYTES && half < RECORD_LABELLED_BYTES;
        put(&draft, 1, 0);
        draft.count -= bytes - half;
        put(&draft, 0, RECORDS);
        offer(&draft, 0, RECORDS);
        struct findings found = judge(&draft);
        CHECK_SAME(found.torn_records, !has_label);
        CHECK_SAME(found.lost_records, 1);
        CHECK_SAME(found.stray_bytes + found.hole_bytes, half);
        CHECK(!findings_are_good(&found));
    }
}

static void a_changed_byte_is_seen(void) {
    for (size_t at = 0; at < 4095; at += at < 32 || at % 512 < 9 ? 1 : 7) {
        struct draft draft = draft_new(4095, 4095, 1);
        put(&draft, 0, 0);
        offer(&draft, 0, 0);
        draft.bytes[at] ^= 0x10;
        struct findings found = judge(&draft);
        CHECK_SAME(found.lost_records, 1);
        CHECK_SAME(found.torn_records, at >= RECORD_LABELLED_BYTES);
        CHECK(!findings_are_good(&found));
    }
}

static void swapped_records_are_seen(void) {
    struct draft draft = draft_new(128, 128, 1);
    static const uint64_t ORDER[] = {0, 2, 1, 3};
    for (uint64_t at = 0; at < 4; at++) {
        put(&draft, 0, ORDER[at]);
        offer(&draft, 0, at);
    }
    struct findings found = judge(&draft);
    CHECK_SAME(found.disordered_records, 1);
    CHECK_SAME(found.lost_records + found.doubled_records + found.torn_records, 0);
    CHECK(!findings_are_good(&found));
}

static void a_zero_hole_is_seen(void) {
    for (size_t shape = 0; shape < sizeof SHAPES / sizeof *SHAPES; shape++) {
        struct draft draft = whole(SHAPES[shape].low, SHAPES[shape].high, SHAPES[shape].block_bytes, RECORDS);
        size_t hole = draft.block_bytes == 1 ? 77 : draft.block_bytes;
        memset(draft.bytes + draft.count, 0, hole);
        draft.count += hole;
        put(&draft, 1, RECORDS);
        offer(&draft, 1, RECORDS);
        struct findings found = judge(&draft);
        CHECK_SAME(found.hole_bytes, hole);
        CHECK_SAME(found.lost_records + found.torn_records + found.stray_bytes, 0);
        CHECK(!findings_are_good(&found));
    }
}

static void trailing_garbage_is_seen(void) {
    for (size_t shape = 0; shape < sizeof SHAPES / sizeof *SHAPES; shape++) {
        struct draft draft = whole(SHAPES[shape].low, SHAPES[shape].high, SHAPES[shape].block_bytes, RECORDS);
        memset(draft.bytes + draft.count, 0xEE, 40);
        draft.count += 40;
        struct findings found = judge(&draft);
        CHECK_SAME(found.stray_bytes, 40);
        CHECK_SAME(found.lost_records, 0);
        CHECK(!findings_are_good(&found));
    }
}

static void a_written_padding_is_seen(void) {
    struct draft draft = whole(128, 128, 512, RECORDS);
    draft.bytes[512 + 300] = 1;
    struct findings found = judge(&draft);
    CHECK_SAME(found.stray_bytes, 1);
    CHECK_SAME(found.lost_records, 0);
    CHECK(!findings_are_good(&found));
}

/* A file larger than one read, so that records cross the pieces. */
static void records_lie_across_reads(void) {
    struct draft draft = draft_new(100000, 130000, 1);
    for (uint64_t sequence = 0; sequence < 30; sequence++) {
        offer(&draft, 0, sequence);
        put(&draft, 0, sequence);
    }
    CHECK(draft.count > 3 << 20);
    struct findings found = judge(&draft);
    CHECK(findings_are_good(&found));
    CHECK_SAME(found.records, 30);
}

static void an_unoffered_record_is_stray(void) {
    struct draft draft = whole(128, 128, 1, RECORDS);
    put(&draft, 0, RECORDS);
    struct findings found = judge(&draft);
    CHECK_SAME(found.stray_bytes + found.hole_bytes, 128);
    CHECK_SAME(found.records, WRITERS * RECORDS);
}

/* Even if the rest of the record follows in memory. */
static void half_a_record_is_none(void) {
    struct draft draft = draft_new(1000, 1000, 1);
    put(&draft, 0, 0);
    offer(&draft, 0, 0);
    struct verifier *verifier = verifier_new(&draft.lengths, 1, WRITERS, draft.offers);
    CHECK(verifier != NULL);
    verifier_add(verifier, draft.bytes, 500);
    struct findings found = verifier_conclude(verifier);
    CHECK_SAME(found.records, 0);
    CHECK_SAME(found.torn_records, 1);
    CHECK_SAME(found.stray_bytes + found.hole_bytes, 500);
    verifier_free(verifier);
    free(draft.bytes);
}

void test_verifier(const char *dir) {
    snprintf(path, sizeof path, "%s/file", dir);
    whole_files_are_good();
    a_lost_record_is_seen();
    a_doubled_record_is_seen();
    a_torn_record_is_seen();
    a_changed_byte_is_seen();
    swapped_records_are_seen();
    a_zero_hole_is_seen();
    trailing_garbage_is_seen();
    a_written_padding_is_seen();
    records_lie_across_reads();
    an_unoffered_record_is_stray();
    half_a_record_is_none();
}
