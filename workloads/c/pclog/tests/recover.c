/* Holes, made in the table and the file as an interrupted writer would leave them. */
#define _GNU_SOURCE

#include "check.h"

#include "../identity.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HOLE 512

static const struct pclog_options FRAMED = {.mode = PCLOG_FRAMED, .window_bytes = 65536, .growth_bytes = 8192};

struct situation {
    struct pclog_meta *meta;
    uint64_t hole; /* its offset */
    uint64_t end;
};

static void append(pclog_writer *writer, uint32_t number) {
    unsigned char record[100];
    EQUAL(pclog_append(writer, record, make_record(record, 0, number, sizeof record), NULL), PCLOG_OK);
}

/* Makes two records, a hole of HOLE bytes, and `after` more records. Their writer is closed. */
static struct situation a_hole(uint32_t after) {
    pclog *log = open_log(&FRAMED);
    pclog_writer *writer = open_writer(log);
    struct situation situation = {.meta = map_meta()};
    append(writer, 0);
    append(writer, 1);
    situation.hole = atomic_fetch_add(&situation.meta->cursor, HOLE);
    for (uint32_t at = 0; at < after; at++) {
        append(writer, 2 + at);
    }
    close_both(log, writer);
    situation.end = atomic_load(&situation.meta->cursor);
    return situation;
}

static void owned_by(const struct situation *situation, int slot, uint64_t owner, uint64_t bytes, uint64_t offset) {
    atomic_store(&situation->meta->slots[slot].owner, owner);
    atomic_store(&situation->meta->slots[slot].pending_bytes, bytes);
    atomic_store(&situation->meta->slots[slot].pending_offset, offset);
}

/* Writes the bytes that an interrupted copy leaves. */
static void spoil(uint64_t offset, size_t count) {
    unsigned char *bytes = malloc(count);
    int file = open(LOG, O_RDWR);
    CHECK(bytes != NULL && file >= 0);
    for (size_t at = 0; at < count; at++) {
        bytes[at] = (unsigned char)(at * 37 + 11);
    }
    EQUAL(pwrite(file, bytes, count, (off_t)offset), count);
    close(file);
    free(bytes);
}

static void expect_closed(const struct situation *situation, uint64_t tombstone_bytes, uint32_t records) {
    struct pclog_report report;
    for (int turn = 0; turn < 2; turn++) { /* recovery is idempotent */
        EQUAL(pclog_recover(LOG, &report), PCLOG_OK);
        EQUAL(report.records, records);
        EQUAL(report.tombstone_bytes, tombstone_bytes);
        EQUAL(report.undecided_bytes + report.corrupt_bytes, 0);
        EQUAL(report.end, situation->end);
    }
    check_framed(1, records, &report);
    EQUAL(report.end, situation->end);
}

static void of_a_dead_writer_with_an_offset(void) {
    struct situation situation = a_hole(3);
    owned_by(&situation, 7, dead_identity(), HOLE, situation.hole);
    spoil(situation.hole + 8, 300);
    expect_closed(&situation, HOLE, 5);
    EQUAL(atomic_load(&situation.meta->slots[7].owner), 0);
}

static void of_a_dead_writer_without_an_offset(void) {
    struct situation situation = a_hole(3);
    owned_by(&situation, 7, dead_identity(), HOLE, PCLOG_OFFSET_UNKNOWN);
    expect_closed(&situation, HOLE, 5);
}

static void without_an_owner(void) {
    struct situation situation = a_hole(3);
    spoil(situation.hole + 8, HOLE - 8);
    expect_closed(&situation, HOLE, 5);
}

static void at_the_very_end(void) {
    struct situation situation = a_hole(0);
    expect_closed(&situation, HOLE, 2);
}

/* The writer died before it grew the file for its reservation. */
static void beyond_the_end_of_the_file(void) {
    struct situation situation = a_hole(0);
    atomic_fetch_add(&situation.meta->cursor, 100000);
    situation.end += 100000;
    CHECK(size_of(LOG) < situation.end);
    expect_closed(&situation, HOLE + 100000, 2);
    CHECK(size_of(LOG) >= situation.end);
}

static void several_beside_each_other(void) {
    struct situation situation = a_hole(3);
    uint64_t gone = dead_identity();
    owned_by(&situation, 7, gone, 128, situation.hole);
    owned_by(&situation, 9, gone, 256, situation.hole + 256);
    spoil(situation.hole + 8, 100);
    spoil(situation.hole + 264, 100);
    struct pclog_report report;
    EQUAL(pclog_recover(LOG, &report), PCLOG_OK); /* one owner, none, another owner */
    EQUAL(report.tombstones, 3);
    expect_closed(&situation, HOLE, 5);
}

static void of_a_live_writer_is_left(void) {
    struct situation situation = a_hole(3);
    struct pclog_report report;
    owned_by(&situation, 7, pclog_self(), HOLE, situation.hole);
    for (int turn = 0; turn < 2; turn++) {
        EQUAL(pclog_recover(LOG, &report), PCLOG_UNDECIDED);
        EQUAL(report.undecided_bytes, HOLE);
        EQUAL(report.records, 5);
        EQUAL(report.tombstones, 0);
    }
    EQUAL(pclog_scan(LOG, NULL, NULL, &report), PCLOG_OK);
    EQUAL(report.end, situation.hole);
    owned_by(&situation, 7, dead_identity(), HOLE, situation.hole);
    expect_closed(&situation, HOLE, 5);
}

/* A live writer has announced a length but no offset. The hole may be its own, so a hole without an
 * owner is left. */
static void while_a_live_writer_has_no_offset(void) {
    struct situation situation = a_hole(3);
    struct pclog_report report;
    owned_by(&situation, 7, pclog_self(), 64, PCLOG_OFFSET_UNKNOWN);
    EQUAL(pclog_recover(LOG, &report), PCLOG_UNDECIDED);
    EQUAL(report.undecided_bytes, HOLE);
    EQUAL(report.tombstones, 0);
    owned_by(&situation, 7, pclog_self(), 0, PCLOG_OFFSET_UNKNOWN);
    expect_closed(&situation, HOLE, 5);
}

/* The known hole of a dead writer is closed beside such a writer. */
static void owned_beside_a_writer_without_an_offset(void) {
    struct situation situation = a_hole(3);
    owned_by(&situation, 7, pclog_self(), 64, PCLOG_OFFSET_UNKNOWN);
    owned_by(&situation, 8, dead_identity(), HOLE, situation.hole);
    expect_closed(&situation, HOLE, 5);
}

/* A hole without an owner ends before the published offset of a live writer. */
static void unowned_beside_a_live_writers(void) {
    struct situation situation = a_hole(3);
    struct pclog_report report;
    owned_by(&situation, 7, pclog_self(), 256, situation.hole + 256);
    EQUAL(pclog_recover(LOG, &report), PCLOG_UNDECIDED);
    EQUAL(report.tombstone_bytes, 256);
    EQUAL(report.undecided_bytes, 256);
    EQUAL(report.records, 5);
}

/* A hole longer than one tombstone; the file is sparse. */
static void longer_than_one_tombstone(void) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* too much shadow memory */
    struct situation situation = a_hole(0);
    const uint64_t more = ((uint64_t)2 << 30) + ((uint64_t)100 << 20);
    situation.end = atomic_fetch_add(&situation.meta->cursor, more) + more;
    CHECK(truncate(LOG, (off_t)situation.end + 4096) == 0);
    atomic_store(&situation.meta->grown_bytes, situation.end + 4096);
    expect_closed(&situation, HOLE + more, 2);
#endif
}

static int recover_once(void *context) {
    (void)context;
    return pclog_recover(LOG, NULL);
}

static void many_recoveries_at_once(void) {
    for (int turn = 0; turn < 20; turn++) {
        pid_t pids[4];
        struct situation situation = a_hole(3);
        owned_by(&situation, 7, dead_identity(), 128, situation.hole);
        for (int at = 0; at < 4; at++) {
            pids[at] = begin_child(recover_once, NULL);
        }
        for (int at = 0; at < 4; at++) {
            EQUAL(end_child(pids[at]), 0);
        }
        expect_closed(&situation, HOLE, 5);
        CHECK(unlink(LOG) == 0 && unlink(META) == 0);
    }
}

const struct test RECOVER_TESTS[] = {
    {"hole_of_a_dead_writer_with_an_offset", of_a_dead_writer_with_an_offset},
    {"hole_of_a_dead_writer_without_an_offset", of_a_dead_writer_without_an_offset},
    {"hole_without_an_owner", without_an_owner},
    {"hole_at_the_very_end", at_the_very_end},
    {"hole_beyond_the_end_of_the_file", beyond_the_end_of_the_file},
    {"holes_beside_each_other", several_beside_each_other},
    {"hole_of_a_live_writer_is_left", of_a_live_writer_is_left},
    {"hole_while_a_live_writer_has_no_offset", while_a_live_writer_has_no_offset},
    {"owned_hole_beside_a_writer_without_an_offset", owned_beside_a_writer_without_an_offset},
    {"unowned_hole_beside_one_of_a_live_writer", unowned_beside_a_live_writers},
    {"hole_longer_than_one_tombstone", longer_than_one_tombstone},
    {"many_recoveries_at_once", many_recoveries_at_once},
    {NULL, NULL},
};
