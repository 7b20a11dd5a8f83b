/* Holes, made in the table and the file as a writer that was interrupted would leave them. */
#define _GNU_SOURCE

#include "check.h"

#include "../identity.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HOLE 512

static const struct pclog_options FRAMED = {.mode = PCLOG_FRAMED, .window_bytes = 65536, .growth_bytes = 8192};

struct scene {
    struct pclog_meta *meta;
    uint64_t hole; /* where it begins */
    uint64_t end;
};

static void append(pclog_writer *writer, uint32_t number) {
    unsigned char record[100];
    EQUAL(pclog_append(writer, record, make_record(record, 0, number, sizeof record), NULL), PCLOG_OK);
}

/* Records before a hole of HOLE bytes and `after` records behind it. The writer that made them is gone. */
static struct scene a_hole(uint32_t after) {
    pclog *log = open_log(&FRAMED);
    pclog_writer *writer = open_writer(log);
    struct scene scene = {.meta = map_meta()};
    append(writer, 0);
    append(writer, 1);
    scene.hole = atomic_fetch_add(&scene.meta->cursor, HOLE);
    for (uint32_t at = 0; at < after; at++) {
        append(writer, 2 + at);
    }
    close_both(log, writer);
    scene.end = atomic_load(&scene.meta->cursor);
    return scene;
}

static void owned_by(const struct scene *scene, int slot, uint64_t owner, uint64_t bytes, uint64_t offset) {
    atomic_store(&scene->meta->slots[slot].owner, owner);
    atomic_store(&scene->meta->slots[slot].pending_bytes, bytes);
    atomic_store(&scene->meta->slots[slot].pending_offset, offset);
}

static void spoil(uint64_t offset, size_t count) { /* what a copy that was cut off leaves behind its open commit word */
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

static void expect_closed(const struct scene *scene, uint64_t tombstone_bytes, uint32_t records) {
    struct pclog_report report;
    for (int turn = 0; turn < 2; turn++) { /* twice is once */
        EQUAL(pclog_recover(LOG, &report), PCLOG_OK);
        EQUAL(report.records, records);
        EQUAL(report.tombstone_bytes, tombstone_bytes);
        EQUAL(report.undecided_bytes + report.corrupt_bytes, 0);
        EQUAL(report.end, scene->end);
    }
    check_framed(1, records, &report);
    EQUAL(report.end, scene->end);
}

static void of_a_dead_writer_that_said_where(void) {
    struct scene scene = a_hole(3);
    owned_by(&scene, 7, dead_identity(), HOLE, scene.hole);
    spoil(scene.hole + 8, 300);
    expect_closed(&scene, HOLE, 5);
    EQUAL(atomic_load(&scene.meta->slots[7].owner), 0);
}

static void of_a_dead_writer_that_said_not_where(void) {
    struct scene scene = a_hole(3);
    owned_by(&scene, 7, dead_identity(), HOLE, PCLOG_OFFSET_UNKNOWN);
    expect_closed(&scene, HOLE, 5);
}

static void of_nobody_that_is_known(void) {
    struct scene scene = a_hole(3);
    spoil(scene.hole + 8, HOLE - 8);
    expect_closed(&scene, HOLE, 5);
}

static void at_the_very_end(void) {
    struct scene scene = a_hole(0);
    expect_closed(&scene, HOLE, 2);
}

/* Reserved, and dead before the file was grown so far. */
static void beyond_the_end_of_the_file(void) {
    struct scene scene = a_hole(0);
    atomic_fetch_add(&scene.meta->cursor, 100000);
    scene.end += 100000;
    CHECK(size_of(LOG) < scene.end);
    expect_closed(&scene, HOLE + 100000, 2);
    CHECK(size_of(LOG) >= scene.end);
}

static void several_beside_each_other(void) {
    struct scene scene = a_hole(3);
    uint64_t gone = dead_identity();
    owned_by(&scene, 7, gone, 128, scene.hole);
    owned_by(&scene, 9, gone, 256, scene.hole + 256);
    spoil(scene.hole + 8, 100);
    spoil(scene.hole + 264, 100);
    struct pclog_report report;
    EQUAL(pclog_recover(LOG, &report), PCLOG_OK); /* 128 of one, 128 of nobody, 256 of another */
    EQUAL(report.tombstones, 3);
    expect_closed(&scene, HOLE, 5);
}

static void of_a_living_writer_is_left_alone(void) {
    struct scene scene = a_hole(3);
    struct pclog_report report;
    owned_by(&scene, 7, pclog_self(), HOLE, scene.hole);
    for (int turn = 0; turn < 2; turn++) {
        EQUAL(pclog_recover(LOG, &report), PCLOG_UNDECIDED);
        EQUAL(report.undecided_bytes, HOLE);
        EQUAL(report.records, 5);
        EQUAL(report.tombstones, 0);
    }
    EQUAL(pclog_scan(LOG, NULL, NULL, &report), PCLOG_OK);
    EQUAL(report.end, scene.hole);
    owned_by(&scene, 7, dead_identity(), HOLE, scene.hole);
    expect_closed(&scene, HOLE, 5);
}

/* One that lives has announced a length and not said where: the hole may be its own, and nobody's hole is then left. */
static void while_a_living_writer_has_not_said_where(void) {
    struct scene scene = a_hole(3);
    struct pclog_report report;
    owned_by(&scene, 7, pclog_self(), 64, PCLOG_OFFSET_UNKNOWN);
    EQUAL(pclog_recover(LOG, &report), PCLOG_UNDECIDED);
    EQUAL(report.undecided_bytes, HOLE);
    EQUAL(report.tombstones, 0);
    owned_by(&scene, 7, pclog_self(), 0, PCLOG_OFFSET_UNKNOWN);
    expect_closed(&scene, HOLE, 5);
}

/* A dead one's that is known is closed beside such a writer all the same. */
static void a_known_one_beside_a_writer_that_has_not_said_where(void) {
    struct scene scene = a_hole(3);
    owned_by(&scene, 7, pclog_self(), 64, PCLOG_OFFSET_UNKNOWN);
    owned_by(&scene, 8, dead_identity(), HOLE, scene.hole);
    expect_closed(&scene, HOLE, 5);
}

/* Nobody's hole ends before a living writer's place. */
static void nobodys_beside_a_living_writers(void) {
    struct scene scene = a_hole(3);
    struct pclog_report report;
    owned_by(&scene, 7, pclog_self(), 256, scene.hole + 256);
    EQUAL(pclog_recover(LOG, &report), PCLOG_UNDECIDED);
    EQUAL(report.tombstone_bytes, 256);
    EQUAL(report.undecided_bytes, 256);
    EQUAL(report.records, 5);
}

/* Longer than one tombstone can jump; the file is sparse. */
static void longer_than_one_tombstone(void) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* whose shadow of it would fill the memory */
    struct scene scene = a_hole(0);
    const uint64_t more = ((uint64_t)2 << 30) + ((uint64_t)100 << 20);
    scene.end = atomic_fetch_add(&scene.meta->cursor, more) + more;
    CHECK(truncate(LOG, (off_t)scene.end + 4096) == 0);
    atomic_store(&scene.meta->grown_bytes, scene.end + 4096);
    expect_closed(&scene, HOLE + more, 2);
#endif
}

static int recover_once(void *context) {
    (void)context;
    return pclog_recover(LOG, NULL);
}

static void many_recoveries_at_once(void) {
    for (int turn = 0; turn < 20; turn++) {
        pid_t pids[4];
        struct scene scene = a_hole(3);
        owned_by(&scene, 7, dead_identity(), 128, scene.hole);
        for (int at = 0; at < 4; at++) {
            pids[at] = begin_child(recover_once, NULL);
        }
        for (int at = 0; at < 4; at++) {
            EQUAL(end_child(pids[at]), 0);
        }
        expect_closed(&scene, HOLE, 5);
        CHECK(unlink(LOG) == 0 && unlink(META) == 0);
    }
}

const struct test RECOVER_TESTS[] = {
    {"hole_of_a_dead_writer_that_said_where", of_a_dead_writer_that_said_where},
    {"hole_of_a_dead_writer_that_said_not_where", of_a_dead_writer_that_said_not_where},
    {"hole_of_nobody_that_is_known", of_nobody_that_is_known},
    {"hole_at_the_very_end", at_the_very_end},
    {"hole_beyond_the_end_of_the_file", beyond_the_end_of_the_file},
    {"holes_beside_each_other", several_beside_each_other},
    {"hole_of_a_living_writer_is_left_alone", of_a_living_writer_is_left_alone},
    {"hole_while_a_living_writer_has_not_said_where", while_a_living_writer_has_not_said_where},
    {"hole_that_is_known_beside_a_writer_that_has_not_said_where", a_known_one_beside_a_writer_that_has_not_said_where},
    {"hole_of_nobody_beside_a_living_writers", nobodys_beside_a_living_writers},
    {"hole_longer_than_one_tombstone", longer_than_one_tombstone},
    {"many_recoveries_at_once", many_recoveries_at_once},
    {NULL, NULL},
};
