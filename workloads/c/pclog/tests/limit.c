#define _GNU_SOURCE

#include "check.h"

#include "../identity.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void no_more_writers_than_slots(void) {
    static pclog_writer *writers[PCLOG_WRITERS_MAX];
    pclog_writer *more;
    pclog *log = open_log(NULL);
    for (int at = 0; at < PCLOG_WRITERS_MAX; at++) {
        writers[at] = open_writer(log);
    }
    EQUAL(pclog_writer_open(log, &more), PCLOG_TOO_MANY);
    EQUAL(pclog_writer_close(writers[500]), PCLOG_OK);
    writers[500] = open_writer(log);
    struct pclog_meta *meta = map_meta();
    for (int at = 0; at < PCLOG_WRITERS_MAX; at++) {
        EQUAL(pclog_writer_close(writers[at]), PCLOG_OK);
        atomic_store(&meta->slots[at].owner, 1); /* an existing pid, another start time */
    }
    EQUAL(pclog_writer_close(open_writer(log)), PCLOG_OK); /* takes the slot of a dead writer */
    EQUAL(pclog_close(log), PCLOG_OK);
}

/* Moves the end of the log to `offset`; the file is sparse. */
static void move_to(uint64_t offset) {
    struct pclog_meta *meta = map_meta();
    CHECK(truncate(LOG, (off_t)offset) == 0);
    atomic_store(&meta->cursor, offset);
    atomic_store(&meta->grown_bytes, offset);
}

static void offsets_beyond_four_gigabytes(void) {
    static unsigned char record[3000], back[3000];
    pclog *log = open_log(&(struct pclog_options){.window_bytes = 1 << 20});
    const uint64_t start = ((uint64_t)1 << 32) - 10 * sizeof record;
    move_to(start);
    pclog_writer *writer = open_writer(log);
    for (uint32_t at = 0; at < 20; at++) {
        uint64_t offset;
        EQUAL(pclog_append(writer, record, make_record(record, 0, at, sizeof record), &offset), PCLOG_OK);
        EQUAL(offset, start + at * sizeof record);
    }
    EQUAL(pclog_writer_close(writer), PCLOG_OK);
    EQUAL(pclog_trim(log), PCLOG_OK);
    EQUAL(size_of(LOG), start + 20 * sizeof record);
    FILE *file = fopen(LOG, "r");
    CHECK(file != NULL && fseek(file, (long)start, SEEK_SET) == 0);
    for (uint32_t at = 0; at < 20; at++) {
        EQUAL(fread(back, sizeof back, 1, file), 1);
        EQUAL(number_of(back), at);
        CHECK(record_is_whole(back, sizeof back));
    }
    fclose(file);
    EQUAL(pclog_close(log), PCLOG_OK);
}

static void no_log_exceeds_its_maximum(void) {
    pclog *log = open_log(NULL);
    pclog_writer *writer = open_writer(log);
    struct pclog_meta *meta = map_meta();
    atomic_store(&meta->cursor, PCLOG_END_MAX - 2);
    EQUAL(pclog_append(writer, "abc", 3, NULL), PCLOG_TOO_LARGE);
    EQUAL(pclog_end(log), PCLOG_END_MAX - 2); /* released */
    close_both(log, writer);
}

/* No window can be mapped, so that records are written with pwrite(2). */
static void without_address_space(void) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* need address space */
    unsigned char record[100];
    for (int mode = PCLOG_RAW; mode <= PCLOG_FRAMED; mode++) {
        struct pclog_options options = {
            .mode = (enum pclog_mode)mode, .window_bytes = (uint64_t)1 << 30, .growth_bytes = 4096};
        pclog *log = open_log(&options);
        pclog_writer *writer = open_writer(log);
        struct rlimit before, little = {256 << 20, RLIM_INFINITY};
        CHECK(getrlimit(RLIMIT_AS, &before) == 0 && setrlimit(RLIMIT_AS, &little) == 0);
        for (uint32_t at = 0; at < 500; at++) {
            EQUAL(pclog_append(writer, record, make_record(record, 0, at, sizeof record), NULL), PCLOG_OK);
        }
        CHECK(setrlimit(RLIMIT_AS, &before) == 0);
        EQUAL(pclog_writer_close(writer), PCLOG_OK);
        EQUAL(pclog_trim(log), PCLOG_OK);
        if (mode == PCLOG_FRAMED) {
            check_framed(1, 500, NULL);
        } else {
            EQUAL(size_of(LOG), 500 * sizeof record);
        }
        EQUAL(pclog_close(log), PCLOG_OK);
        CHECK(unlink(LOG) == 0 && unlink(META) == 0);
    }
#endif
}

static void identities_distinguish_processes(void) {
    uint64_t self = pclog_self();
    EQUAL(pclog_life_of(self), PCLOG_RUNNING);
    EQUAL(pclog_life_of(0), PCLOG_DEAD);
    EQUAL(pclog_life_of(dead_identity()), PCLOG_DEAD);
    EQUAL(pclog_life_of(self ^ (uint64_t)1 << 30), PCLOG_DEAD); /* another start time */
    EQUAL(pclog_life_of(self ^ (uint64_t)1 << 55), PCLOG_DEAD); /* another boot */
}

const struct test LIMIT_TESTS[] = {
    {"no_more_writers_than_slots", no_more_writers_than_slots},
    {"offsets_beyond_four_gigabytes", offsets_beyond_four_gigabytes},
    {"no_log_exceeds_its_maximum", no_log_exceeds_its_maximum},
    {"without_address_space", without_address_space},
    {"identities_distinguish_processes", identities_distinguish_processes},
    {NULL, NULL},
};
