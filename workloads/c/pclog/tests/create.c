#define _GNU_SOURCE

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAKERS 8

static const struct pclog_options FRAMED = {.mode = PCLOG_FRAMED, .window_bytes = 65536};

/* A word in shared memory starts all processes at once, so that they create the log
 * concurrently. */
static int make_and_append(void *context) {
    unsigned char record[64];
    _Atomic int *gate = context;
    uint32_t who = (uint32_t)atomic_fetch_add(gate, 1);
    while (atomic_load(gate) < MAKERS) {
    }
    pclog *log = open_log(&FRAMED);
    pclog_writer *writer = open_writer(log);
    for (uint32_t at = 0; at < 10; at++) {
        EQUAL(pclog_append(writer, record, make_record(record, who, at, sizeof record), NULL), PCLOG_OK);
    }
    close_both(log, writer);
    return 0;
}

static void concurrent_creation(void) {
    _Atomic int *gate = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(gate != MAP_FAILED);
    for (int turn = 0; turn < 20; turn++) {
        pid_t pids[MAKERS];
        atomic_store(gate, 0);
        for (int at = 0; at < MAKERS; at++) {
            pids[at] = begin_child(make_and_append, gate);
        }
        for (int at = 0; at < MAKERS; at++) {
            EQUAL(end_child(pids[at]), 0);
        }
        check_framed(MAKERS, 10, NULL);
        CHECK(unlink(LOG) == 0 && unlink(META) == 0);
    }
}

static int try_open(const struct pclog_options *options) {
    pclog *log;
    int status = pclog_open(&log, LOG, options);
    if (status == PCLOG_OK) {
        EQUAL(pclog_close(log), PCLOG_OK);
    }
    return status;
}

/* Metadata appears complete, so a shorter file is damaged. Lengths decrease, because truncate(2)
 * makes each from the previous one. */
static void every_short_length_is_refused(void) {
    size_t bytes;
    EQUAL(try_open(NULL), PCLOG_OK);
    unsigned char *whole = read_file(META, &bytes);
    for (size_t length = bytes; length > 0;) {
        length -= length > 4096 ? 61 : 1;
        CHECK(truncate(META, (off_t)length) == 0);
        EQUAL(try_open(NULL), PCLOG_FOREIGN);
    }
    write_file(META, whole, bytes);
    EQUAL(try_open(NULL), PCLOG_OK);
    free(whole);
}

static void garbage_is_refused(void) {
    size_t bytes;
    EQUAL(try_open(NULL), PCLOG_OK);
    unsigned char *whole = read_file(META, &bytes);
    for (size_t at = 0; at < offsetof(struct pclog_meta, parameters[1]); at++) {
        whole[at] ^= 0x5a;
        write_file(META, whole, bytes);
        int status = try_open(NULL);
        bool version = at >= offsetof(struct pclog_meta, version) && at < offsetof(struct pclog_meta, valid_copy);
        bool word = at >= offsetof(struct pclog_meta, valid_copy) && at < offsetof(struct pclog_meta, parameters);
        if (word) { /* only its lowest bit is used */
            CHECK(status == PCLOG_OK || status == PCLOG_FOREIGN);
        } else {
            EQUAL(status, version ? PCLOG_OTHER_VERSION : PCLOG_FOREIGN);
        }
        whole[at] ^= 0x5a;
    }
    memset(whole, 0xa5, bytes);
    write_file(META, whole, bytes);
    EQUAL(try_open(NULL), PCLOG_FOREIGN);
    CHECK(unlink(META) == 0 && mkdir(META, 0755) == 0);
    EQUAL(try_open(NULL), PCLOG_SYSTEM);
    free(whole);
}

static void options_must_agree(void) {
    struct pclog_options first = {
        .mode = PCLOG_FRAMED, .window_bytes = 65536, .growth_bytes = 8192, .growth_percent = 10};
    struct pclog_options other;
    EQUAL(try_open(&first), PCLOG_OK);
    EQUAL(try_open(&first), PCLOG_OK);
    EQUAL(try_open(NULL), PCLOG_OK);
    other = (struct pclog_options){.prefault_bytes = 4096, .permissions = 0600}; /* per process */
    EQUAL(try_open(&other), PCLOG_OK);
    other = (struct pclog_options){.mode = PCLOG_FRAMED};
    EQUAL(try_open(&other), PCLOG_OK);
    other.window_bytes = 131072;
    EQUAL(try_open(&other), PCLOG_OTHER_OPTIONS);
    other = (struct pclog_options){.mode = PCLOG_FRAMED, .growth = PCLOG_FTRUNCATE};
    EQUAL(try_open(&other), PCLOG_OTHER_OPTIONS);
    other = (struct pclog_options){.mode = PCLOG_RAW, .window_bytes = 65536};
    EQUAL(try_open(&other), PCLOG_OTHER_OPTIONS);
    other = (struct pclog_options){.mode = PCLOG_FRAMED, .growth_percent = 11};
    EQUAL(try_open(&other), PCLOG_OTHER_OPTIONS);
}

static void an_existing_file_is_continued(void) {
    size_t bytes;
    write_file(LOG, "before\n", 7);
    pclog *log = open_log(NULL);
    pclog_writer *writer = open_writer(log);
    EQUAL(pclog_append(writer, "after\n", 6, NULL), PCLOG_OK);
    EQUAL(pclog_writer_close(writer), PCLOG_OK);
    EQUAL(pclog_trim(log), PCLOG_OK);
    EQUAL(pclog_close(log), PCLOG_OK);
    unsigned char *text = read_file(LOG, &bytes);
    EQUAL(bytes, 13);
    CHECK(memcmp(text, "before\nafter\n", 13) == 0);
    free(text);
}

/* Changes the user first, because root may write anywhere. */
static int open_unprivileged(void *context) {
    (void)context;
    if (geteuid() == 0 && (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0)) {
        return 100;
    }
    int status = try_open(NULL);
    return status == PCLOG_SYSTEM && (errno == EACCES || errno == EROFS) ? 0 : 50 + status;
}

static void a_folder_without_write_permission(void) {
    CHECK(chmod(".", 0555) == 0);
    EQUAL(in_child(open_unprivileged, NULL), 0);
    CHECK(chmod(".", 0755) == 0);
    write_file(LOG, "", 0); /* the log is writable, but its metadata cannot be created */
    CHECK(chmod(LOG, 0666) == 0 && chmod(".", 0555) == 0);
    EQUAL(in_child(open_unprivileged, NULL), 0);
    CHECK(chmod(".", 0755) == 0);
    EQUAL(try_open(NULL), PCLOG_OK);
    CHECK(chmod(META, 0444) == 0);
    EQUAL(in_child(open_unprivileged, NULL), 0);
}

const struct test CREATE_TESTS[] = {
    {"concurrent_creation", concurrent_creation},
    {"every_short_length_is_refused", every_short_length_is_refused},
    {"garbage_is_refused", garbage_is_refused},
    {"options_must_agree", options_must_agree},
    {"an_existing_file_is_continued", an_existing_file_is_continued},
    {"a_folder_without_write_permission", a_folder_without_write_permission},
    {NULL, NULL},
};
