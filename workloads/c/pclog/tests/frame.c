#define _GNU_SOURCE

#include "check.h"

#include "../crc32c.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct pclog_options FRAMED = {.mode = PCLOG_FRAMED, .window_bytes = 16384, .growth_bytes = 4096};

static void fill(uint32_t records) {
    static unsigned char record[200000];
    static const size_t SIZES[] = {8, 9, 15, 16, 17, 100, 4000, 4072, 4080, 8191, 20000, 100000};
    pclog *log = open_log(&FRAMED);
    pclog_writer *writer = open_writer(log);
    for (uint32_t at = 0; at < records; at++) {
        size_t bytes = make_record(record, 0, at, SIZES[at * 5 % (sizeof SIZES / sizeof *SIZES)]);
        EQUAL(pclog_append(writer, record, bytes, NULL), PCLOG_OK);
    }
    close_both(log, writer);
}

static void records_are_read_back(void) {
    struct pclog_report report;
    fill(300);
    check_framed(1, 300, &report);
    EQUAL(report.records, 300);
    EQUAL(report.tombstones + report.corrupt_bytes + report.undecided_bytes, 0);
    pclog *log = open_log(NULL); /* without options, the mode comes from the file */
    EQUAL(report.end, pclog_end(log));
    EQUAL(pclog_trim(log), PCLOG_OK);
    EQUAL(size_of(LOG), report.end);
    EQUAL(pclog_close(log), PCLOG_OK);
    check_framed(1, 300, NULL);
}

static int remember(const struct pclog_record *record, void *context) {
    *(struct pclog_record *)context = *record;
    return 0;
}

static void frames_hold_writer_and_epoch(void) {
    struct pclog_record last;
    struct pclog_report report;
    uint64_t offset;
    for (uint32_t turn = 1; turn <= 3; turn++) {
        pclog *log = open_log(&FRAMED);
        pclog_writer *writer = open_writer(log);
        EQUAL(pclog_writer_id(writer), turn);
        EQUAL(pclog_append(writer, "x", 1, &offset), PCLOG_OK);
        close_both(log, writer);
        EQUAL(pclog_scan(LOG, remember, &last, &report), PCLOG_OK);
        EQUAL(report.records, turn);
        EQUAL(last.offset, offset);
        EQUAL(last.writer, turn);
        EQUAL(last.epoch, 1);
        EQUAL(last.bytes, 1);
    }
}

static int stop_at_third(const struct pclog_record *record, void *context) {
    (void)record;
    return ++*(int *)context == 3;
}

static void a_reader_may_stop(void) {
    int seen = 0;
    fill(10);
    EQUAL(pclog_scan(LOG, stop_at_third, &seen, NULL), PCLOG_OK);
    EQUAL(seen, 3);
}

static void spoil(uint64_t offset, const void *bytes, size_t count) {
    int file = open(LOG, O_RDWR);
    CHECK(file >= 0);
    EQUAL(pwrite(file, bytes, count, (off_t)offset), count);
    close(file);
}

static uint64_t append_three(uint64_t offsets[3]) {
    pclog *log = open_log(&FRAMED);
    pclog_writer *writer = open_writer(log);
    unsigned char record[100];
    for (uint32_t at = 0; at < 3; at++) {
        EQUAL(pclog_append(writer, record, make_record(record, 0, at, sizeof record), &offsets[at]), PCLOG_OK);
    }
    uint64_t end = pclog_end(log);
    close_both(log, writer);
    return end;
}

/* Changes each byte of the middle frame: the other frames are read, and its bytes count as
 * damaged. */
static void a_damaged_frame_affects_only_itself(void) {
    uint64_t offsets[3];
    struct pclog_report report;
    append_three(offsets);
    for (uint64_t at = offsets[1]; at < offsets[1] + PCLOG_FRAME_BYTES + 100; at++) {
        size_t bytes;
        unsigned char *text = read_file(LOG, &bytes);
        unsigned char was = text[at], is = was ^ 0x40;
        spoil(at, &is, 1);
        EQUAL(pclog_scan(LOG, NULL, NULL, &report), PCLOG_OK);
        EQUAL(report.records, 2);
        EQUAL(report.corrupt_bytes, offsets[2] - offsets[1]);
        spoil(at, &was, 1);
        free(text);
    }
    check_framed(1, 3, NULL);
}

static void damage_at_the_end_is_counted_and_not_read(void) {
    uint64_t offsets[3], end = append_three(offsets);
    struct pclog_report report;
    spoil(end, "garbage garbage ", 16);
    EQUAL(pclog_scan(LOG, NULL, NULL, &report), PCLOG_OK);
    EQUAL(report.records, 3);
    EQUAL(report.corrupt_bytes, 16);
    EQUAL(report.end, end + 16);
}

/* A record contains a copy of another frame and is then damaged in its header. The copy is not
 * taken for a record. */
static void a_frame_within_a_record_is_ignored(void) {
    uint64_t offsets[3], offset;
    size_t bytes;
    struct pclog_report report;
    append_three(offsets);
    unsigned char *text = read_file(LOG, &bytes);
    pclog *log = open_log(&FRAMED);
    pclog_writer *writer = open_writer(log);
    EQUAL(pclog_append(writer, text, (size_t)offsets[2] + 120, &offset), PCLOG_OK);
    EQUAL(pclog_append(writer, text, 10, NULL), PCLOG_OK);
    close_both(log, writer);
    spoil(offset, "\xff", 1);
    EQUAL(pclog_scan(LOG, NULL, NULL, &report), PCLOG_OK);
    EQUAL(report.records, 4);
    CHECK(report.corrupt_bytes > 0);
    free(text);
}

static void other_files_are_refused(void) {
    struct pclog_report report;
    EQUAL(pclog_scan("nothing", NULL, NULL, &report), PCLOG_SYSTEM);
    write_file(LOG, "", 0);
    EQUAL(pclog_scan(LOG, NULL, NULL, &report), PCLOG_FOREIGN);
    write_file(LOG, "some text that is longer than the head of a log\n", 48);
    EQUAL(pclog_scan(LOG, NULL, NULL, &report), PCLOG_FOREIGN);
    EQUAL(pclog_recover(LOG, &report), PCLOG_FOREIGN);
    pclog *log;
    EQUAL(pclog_open(&log, LOG, &FRAMED), PCLOG_OTHER_OPTIONS);
    EQUAL(pclog_recover("nothing", NULL), PCLOG_SYSTEM);
}

/* The check values of RFC 3720, B.4. */
static void the_crc_is_castagnoli(void) {
    unsigned char bytes[32];
    memset(bytes, 0, sizeof bytes);
    EQUAL(pclog_crc32c(0, bytes, sizeof bytes), 0x8a9136aa);
    memset(bytes, 0xff, sizeof bytes);
    EQUAL(pclog_crc32c(0, bytes, sizeof bytes), 0x62a8ab43);
    EQUAL(pclog_crc32c(0, "123456789", 9), 0xe3069283);
    for (size_t length = 0; length < 32; length++) {
        EQUAL(pclog_crc32c(7, bytes, length), pclog_crc32c_by_table(7, bytes, length));
    }
}

const struct test FRAME_TESTS[] = {
    {"records_are_read_back", records_are_read_back},
    {"frames_hold_writer_and_epoch", frames_hold_writer_and_epoch},
    {"a_reader_may_stop", a_reader_may_stop},
    {"a_damaged_frame_affects_only_itself", a_damaged_frame_affects_only_itself},
    {"damage_at_the_end_is_counted_and_not_read", damage_at_the_end_is_counted_and_not_read},
    {"a_frame_within_a_record_is_ignored", a_frame_within_a_record_is_ignored},
    {"other_files_are_refused", other_files_are_refused},
    {"the_crc_is_castagnoli", the_crc_is_castagnoli},
    {NULL, NULL},
};
