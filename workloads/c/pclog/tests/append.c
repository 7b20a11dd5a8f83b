#define _GNU_SOURCE

#include "check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void expect_file(const void *text, size_t bytes) {
    size_t have;
    unsigned char *is = read_file(LOG, &have);
    EQUAL(have, bytes);
    CHECK(memcmp(is, text, bytes) == 0);
    free(is);
}

static void raw_is_the_bytes_and_nothing_else(void) {
    pclog *log = open_log(NULL);
    pclog_writer *writer = open_writer(log);
    uint64_t offset = 99;
    EQUAL(pclog_append(writer, "hello\n", 6, &offset), PCLOG_OK);
    EQUAL(offset, 0);
    EQUAL(pclog_append(writer, "world\n", 6, &offset), PCLOG_OK);
    EQUAL(offset, 6);
    EQUAL(pclog_end(log), 12);
    EQUAL(pclog_sync(log), PCLOG_OK);
    EQUAL(pclog_writer_close(writer), PCLOG_OK);
    EQUAL(size_of(LOG), 64 << 20); /* grown ahead */
    EQUAL(pclog_trim(log), PCLOG_OK);
    expect_file("hello\nworld\n", 12);
    EQUAL(pclog_trim(log), PCLOG_OK);
    expect_file("hello\nworld\n", 12);
    EQUAL(pclog_close(log), PCLOG_OK);
}

static void a_reopened_log_continues(void) {
    for (int turn = 0; turn < 4; turn++) {
        pclog *log = open_log(NULL);
        pclog_writer *writer = open_writer(log);
        EQUAL(pclog_append(writer, "ab", 2, NULL), PCLOG_OK);
        EQUAL(pclog_writer_close(writer), PCLOG_OK);
        if (turn % 2 == 1) {
            EQUAL(pclog_trim(log), PCLOG_OK);
        }
        EQUAL(pclog_close(log), PCLOG_OK);
    }
    expect_file("abababab", 8);
}

/* Sizes around a page, half a window and several windows, so that records cross, fill and exceed
 * windows. */
static void any_size_anywhere(void) {
    static const size_t SIZES[] = {1, 7, 8, 4095, 4096, 4097, 8191, 8192, 8193, 12289, 16384, 40000, 100001};
    size_t sizes = sizeof SIZES / sizeof *SIZES, total = 0;
    for (int growth = PCLOG_FALLOCATE; growth <= PCLOG_FTRUNCATE; growth++) {
        struct pclog_options options = {
            .growth = (enum pclog_growth)growth, .window_bytes = 16384, .growth_bytes = 4096};
        unsigned char *all = malloc(16 << 20);
        pclog *log = open_log(&options);
        pclog_writer *writer = open_writer(log);
        total = 0;
        for (uint32_t turn = 0; turn < 200; turn++) {
            size_t bytes = SIZES[turn * 7 % sizes];
            for (size_t at = 0; at < bytes; at++) {
                all[total + at] = (unsigned char)(1 + (turn + at) % 255);
            }
            uint64_t offset;
            EQUAL(pclog_append(writer, all + total, bytes, &offset), PCLOG_OK);
            EQUAL(offset, total);
            total += bytes;
        }
        EQUAL(pclog_writer_close(writer), PCLOG_OK);
        EQUAL(pclog_trim(log), PCLOG_OK);
        expect_file(all, total);
        EQUAL(pclog_close(log), PCLOG_OK);
        CHECK(unlink(LOG) == 0 && unlink(META) == 0);
        free(all);
    }
}

static void invalid_arguments_are_refused(void) {
    pclog *log = NULL;
    pclog_writer *writer;
    struct pclog_options odd_window = {.window_bytes = 12288}, odd_growth = {.growth_bytes = 100},
                         odd_mode = {.mode = (enum pclog_mode)7};
    EQUAL(pclog_open(NULL, LOG, NULL), PCLOG_INVALID);
    EQUAL(pclog_open(&log, "", NULL), PCLOG_INVALID);
    EQUAL(pclog_open(&log, LOG, &odd_window), PCLOG_INVALID);
    EQUAL(pclog_open(&log, LOG, &odd_growth), PCLOG_INVALID);
    EQUAL(pclog_open(&log, LOG, &odd_mode), PCLOG_INVALID);
    EQUAL(pclog_open(&log, "/dev/null", NULL), PCLOG_INVALID);
    EQUAL(pclog_open(&log, "no/such/folder", NULL), PCLOG_SYSTEM);
    EQUAL(errno, ENOENT);
    log = open_log(NULL);
    writer = open_writer(log);
    EQUAL(pclog_append(writer, "x", 0, NULL), PCLOG_INVALID);
    EQUAL(pclog_append(writer, NULL, 1, NULL), PCLOG_INVALID);
    EQUAL(pclog_append(writer, "x", PCLOG_RECORD_MAX + 1, NULL), PCLOG_TOO_LARGE);
    EQUAL(pclog_end(log), 0);
    EQUAL(pclog_close(log), PCLOG_LIVE_WRITERS);
    close_both(log, writer);
    EQUAL(pclog_close(NULL), PCLOG_INVALID);
    EQUAL(pclog_writer_close(NULL), PCLOG_INVALID);
}

static void every_status_has_a_sentence(void) {
    for (int status = PCLOG_OK; status <= PCLOG_OTHER_NAMESPACE; status++) {
        CHECK(pclog_explain(status) != NULL && strlen(pclog_explain(status)) > 10);
        CHECK(strcmp(pclog_explain(status), pclog_explain(-1)) != 0);
    }
    CHECK(strcmp(pclog_explain(1000), pclog_explain(-1)) == 0);
}

static void permissions_are_kept(void) {
    struct pclog_options options = {.permissions = 0600};
    struct stat log, meta;
    EQUAL(pclog_close(open_log(&options)), PCLOG_OK);
    CHECK(stat(LOG, &log) == 0 && stat(META, &meta) == 0);
    EQUAL(log.st_mode & 0777, 0600);
    EQUAL(meta.st_mode & 0777, 0600);
}

static void growth_can_be_a_share_of_the_size(void) {
    struct pclog_options options = {.window_bytes = 4096, .growth_bytes = 4096, .growth_percent = 100};
    pclog *log = open_log(&options);
    pclog_writer *writer = open_writer(log);
    static unsigned char page[4096];
    uint64_t sizes[9];
    memset(page, 'x', sizeof page);
    for (int at = 0; at < 9; at++) {
        EQUAL(pclog_append(writer, page, sizeof page, NULL), PCLOG_OK);
        sizes[at] = size_of(LOG) / 4096;
    }
    EQUAL(sizes[0], 1);
    EQUAL(sizes[1], 2);
    EQUAL(sizes[2], 4);
    EQUAL(sizes[4], 8);
    EQUAL(sizes[8], 16);
    close_both(log, writer);
}

static void a_helper_grows_the_file_ahead(void) {
    struct pclog_options options = {.window_bytes = 1 << 20, .growth_bytes = 1 << 20, .prefault_bytes = 4 << 20};
    pclog *log = open_log(&options);
    pclog_writer *writer = open_writer(log);
    static unsigned char part[5000];
    memset(part, 'x', sizeof part);
    for (int tries = 0; size_of(LOG) < 4 << 20; tries++) {
        CHECK(tries < 2000);
        usleep(1000);
    }
    for (int at = 0; at < 4000; at++) {
        EQUAL(pclog_append(writer, part, sizeof part, NULL), PCLOG_OK);
    }
    EQUAL(pclog_writer_close(writer), PCLOG_OK);
    EQUAL(pclog_trim(log), PCLOG_OK);
    EQUAL(size_of(LOG), 4000 * sizeof part);
    size_t bytes;
    unsigned char *text = read_file(LOG, &bytes);
    for (size_t at = 0; at < bytes; at++) {
        CHECK(text[at] == 'x');
    }
    free(text);
    EQUAL(pclog_close(log), PCLOG_OK);
}

const struct test APPEND_TESTS[] = {
    {"raw_is_the_bytes_and_nothing_else", raw_is_the_bytes_and_nothing_else},
    {"a_reopened_log_continues", a_reopened_log_continues},
    {"any_size_anywhere", any_size_anywhere},
    {"invalid_arguments_are_refused", invalid_arguments_are_refused},
    {"every_status_has_a_sentence", every_status_has_a_sentence},
    {"permissions_are_kept", permissions_are_kept},
    {"growth_can_be_a_share_of_the_size", growth_can_be_a_share_of_the_size},
    {"a_helper_grows_the_file_ahead", a_helper_grows_the_file_ahead},
    {NULL, NULL},
};
