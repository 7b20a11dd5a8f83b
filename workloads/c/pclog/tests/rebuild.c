/* Metadata that a reboot, a rotation or a truncation has made stale. */
#define _GNU_SOURCE

#include "check.h"

#include "../handle.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct pclog_options FRAMED = {.mode = PCLOG_FRAMED, .window_bytes = 65536, .growth_bytes = 8192};

/* Changes the metadata as if it stemmed from an earlier boot, with owners that no longer exist. */
static struct pclog_meta *as_of_another_boot(void) {
    struct pclog_meta *meta = map_meta();
    struct pclog_parameters *parameters = &meta->parameters[atomic_load(&meta->valid_copy) & 1];
    memcpy(parameters->boot_id, "another boot", 13);
    pclog_parameters_seal(parameters);
    atomic_store(&meta->slots[5].owner, 12345);
    atomic_store(&meta->slots[5].pending_bytes, 64);
    return meta;
}

static void append_text(const struct pclog_options *options, const char *text, size_t bytes) {
    pclog *log = open_log(options);
    pclog_writer *writer = open_writer(log);
    EQUAL(pclog_append(writer, text, bytes, NULL), PCLOG_OK);
    close_both(log, writer);
}

static void expect_raw(const char *text, size_t bytes) {
    size_t have;
    pclog *log = open_log(NULL);
    EQUAL(pclog_trim(log), PCLOG_OK);
    EQUAL(pclog_close(log), PCLOG_OK);
    unsigned char *is = read_file(LOG, &have);
    EQUAL(have, bytes);
    CHECK(memcmp(is, text, bytes) == 0);
    free(is);
}

/* The cursor on the disk is older than the bytes. */
static void raw_after_a_boot_ends_with_its_last_byte(void) {
    append_text(NULL, "first\n", 6);
    struct pclog_meta *meta = as_of_another_boot();
    atomic_store(&meta->cursor, 2);
    append_text(NULL, "second\n", 7);
    expect_raw("first\nsecond\n", 13);
}

/* The cursor is right, and the log ends in zeros. */
static void raw_after_a_boot_keeps_zeros_below_its_cursor(void) {
    append_text(NULL, "zero\0\0\0\0", 8);
    as_of_another_boot();
    append_text(NULL, "x", 1);
    expect_raw("zero\0\0\0\0x", 9);
}

/* The file is shorter than the cursor. */
static void raw_after_a_boot_ends_with_its_file(void) {
    append_text(NULL, "first\n", 6);
    as_of_another_boot();
    CHECK(truncate(LOG, 3) == 0);
    append_text(NULL, "x", 1);
    expect_raw("firx", 4);
}

static void append_numbers(uint32_t from, uint32_t to) {
    unsigned char record[500];
    pclog *log = open_log(&FRAMED);
    pclog_writer *writer = open_writer(log);
    for (uint32_t at = from; at < to; at++) {
        EQUAL(pclog_append(writer, record, make_record(record, 0, at, 20 + at * 37 % 480), NULL), PCLOG_OK);
    }
    close_both(log, writer);
}

static int highest(const struct pclog_record *record, void *context) {
    struct pclog_record *most = context;
    most->epoch = record->epoch > most->epoch ? record->epoch : most->epoch;
    most->writer = record->writer > most->writer ? record->writer : most->writer;
    return 0;
}

static void framed_continues_in_the_next_epoch(void) {
    struct pclog_record most = {0};
    append_numbers(0, 50);
    as_of_another_boot();
    append_numbers(50, 100);
    check_framed(1, 100, NULL);
    EQUAL(pclog_scan(LOG, highest, &most, NULL), PCLOG_OK);
    EQUAL(most.epoch, 2);
    EQUAL(most.writer, 2);
}

/* Missing metadata is made from the frames. */
static void framed_without_metadata_continues(void) {
    struct pclog_record most = {0};
    append_numbers(0, 50);
    CHECK(unlink(META) == 0);
    append_numbers(50, 100);
    check_framed(1, 100, NULL);
    EQUAL(pclog_scan(LOG, highest, &most, NULL), PCLOG_OK);
    EQUAL(most.epoch, 2);
    EQUAL(most.writer, 2);
}

/* Pages that were not on the disk at a crash are zeros; the records behind them are found again. */
static void lost_pages_affect_only_their_records(void) {
    static const unsigned char NOTHING[4096];
    struct pclog_report report;
    append_numbers(0, 200);
    as_of_another_boot();
    FILE *file = fopen(LOG, "r+");
    CHECK(file != NULL && fseek(file, 16384, SEEK_SET) == 0 && fwrite(NOTHING, 4096, 1, file) == 1);
    fclose(file);
    int status = pclog_recover(LOG, &report);
    EQUAL(status, PCLOG_OK);
    CHECK(report.records >= 170 && report.records < 200);
    CHECK(report.tombstone_bytes + report.corrupt_bytes >= 4096 &&
          report.tombstone_bytes + report.corrupt_bytes < 6000);
    pclog *log = open_log(NULL);
    EQUAL(report.end, pclog_end(log));
    EQUAL(pclog_close(log), PCLOG_OK);
    append_numbers(200, 210);
    struct pclog_report again;
    EQUAL(pclog_scan(LOG, NULL, NULL, &again), PCLOG_OK);
    EQUAL(again.records, report.records + 10);
}

/* The last record ends in zeros, none of which may be reused for the next one. */
static void a_record_of_zeros_is_kept_whole(void) {
    static char zeros[1000];
    struct pclog_report report;
    append_text(&FRAMED, zeros, sizeof zeros);
    as_of_another_boot();
    append_text(&FRAMED, zeros, 10);
    EQUAL(pclog_scan(LOG, NULL, NULL, &report), PCLOG_OK);
    EQUAL(report.records, 2);
    EQUAL(report.record_bytes, 1010);
    EQUAL(report.corrupt_bytes, 0);
}

static void a_rotated_log_starts_empty(void) {
    pclog *log = open_log(NULL), *other;
    pclog_writer *writer = open_writer(log);
    EQUAL(pclog_append(writer, "old\n", 4, NULL), PCLOG_OK);
    CHECK(rename(LOG, "log.1") == 0);
    EQUAL(pclog_open(&other, LOG, NULL), PCLOG_STALE); /* a writer is alive */
    EQUAL(pclog_append(writer, "old\n", 4, NULL), PCLOG_OK);
    EQUAL(pclog_writer_close(writer), PCLOG_OK);
    append_text(NULL, "new\n", 4);
    EQUAL(pclog_writer_open(log, &writer), PCLOG_STALE); /* the file of the handle was rotated */
    EQUAL(pclog_close(log), PCLOG_OK);
    expect_raw("new\n", 4);
}

static void another_namespace_is_refused(void) {
    pclog *log = open_log(NULL);
    EQUAL(pclog_close(log), PCLOG_OK);
    struct pclog_meta *meta = map_meta();
    meta->parameters[0].pid_namespace ^= 1;
    pclog_parameters_seal(&meta->parameters[0]);
    EQUAL(pclog_open(&log, LOG, NULL), PCLOG_OTHER_NAMESPACE);
}

const struct test REBUILD_TESTS[] = {
    {"raw_after_a_boot_ends_with_its_last_byte", raw_after_a_boot_ends_with_its_last_byte},
    {"raw_after_a_boot_keeps_zeros_below_its_cursor", raw_after_a_boot_keeps_zeros_below_its_cursor},
    {"raw_after_a_boot_ends_with_its_file", raw_after_a_boot_ends_with_its_file},
    {"framed_continues_in_the_next_epoch", framed_continues_in_the_next_epoch},
    {"framed_without_metadata_continues", framed_without_metadata_continues},
    {"lost_pages_affect_only_their_records", lost_pages_affect_only_their_records},
    {"a_record_of_zeros_is_kept_whole", a_record_of_zeros_is_kept_whole},
    {"a_rotated_log_starts_empty", a_rotated_log_starts_empty},
    {"another_namespace_is_refused", another_namespace_is_refused},
    {NULL, NULL},
};
