/* Logs shared by threads of one process and by several processes. */
#define _GNU_SOURCE

#include "check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WRITERS 4
#define EACH 3000

struct part {
    const struct pclog_options *options;
    pclog *log;
    uint32_t who;
};

static size_t size_for(uint32_t who, uint32_t number) {
    return 8 + (who * 13 + number * 7) % 600;
}

static void append_all(pclog *log, uint32_t who) {
    unsigned char record[1024];
    pclog_writer *writer = open_writer(log);
    for (uint32_t at = 0; at < EACH; at++) {
        EQUAL(pclog_append(writer, record, make_record(record, who, at, size_for(who, at)), NULL), PCLOG_OK);
    }
    EQUAL(pclog_writer_close(writer), PCLOG_OK);
}

static void *in_thread(void *context) {
    struct part *part = context;
    append_all(part->log, part->who);
    return NULL;
}

static int in_process(void *context) {
    struct part *part = context;
    pclog *log = open_log(part->options);
    append_all(log, part->who);
    EQUAL(pclog_close(log), PCLOG_OK);
    return 0;
}

static void by_threads(const struct pclog_options *options) {
    pthread_t threads[WRITERS];
    struct part parts[WRITERS];
    pclog *log = open_log(options);
    for (uint32_t who = 0; who < WRITERS; who++) {
        parts[who] = (struct part){.log = log, .who = who};
        EQUAL(pthread_create(&threads[who], NULL, in_thread, &parts[who]), 0);
    }
    for (uint32_t who = 0; who < WRITERS; who++) {
        EQUAL(pthread_join(threads[who], NULL), 0);
    }
    EQUAL(pclog_trim(log), PCLOG_OK);
    EQUAL(pclog_close(log), PCLOG_OK);
}

static void by_processes(const struct pclog_options *options) {
    pid_t pids[WRITERS];
    struct part parts[WRITERS];
    for (uint32_t who = 0; who < WRITERS; who++) {
        parts[who] = (struct part){.options = options, .who = who};
        pids[who] = begin_child(in_process, &parts[who]);
    }
    for (uint32_t who = 0; who < WRITERS; who++) {
        EQUAL(end_child(pids[who]), 0);
    }
    pclog *log = open_log(options);
    EQUAL(pclog_trim(log), PCLOG_OK);
    EQUAL(pclog_close(log), PCLOG_OK);
}

/* Raw records hold their writer and number, from which their length follows, so that the file can
 * be read record by record. */
static void check_raw(void) {
    uint32_t next[WRITERS] = {0};
    size_t bytes, at = 0;
    unsigned char *text = read_file(LOG, &bytes);
    while (at < bytes) {
        uint32_t who = writer_of(text + at), number = number_of(text + at);
        CHECK(who < WRITERS);
        EQUAL(number, next[who]);
        size_t length = size_for(who, number);
        CHECK(at + length <= bytes && record_is_whole(text + at, length));
        next[who]++;
        at += length;
    }
    for (uint32_t who = 0; who < WRITERS; who++) {
        EQUAL(next[who], EACH);
    }
    free(text);
}

static void raw_with(void (*by)(const struct pclog_options *), enum pclog_growth growth, uint64_t prefault) {
    struct pclog_options options = {
        .growth = growth, .window_bytes = 65536, .growth_bytes = 8192, .prefault_bytes = prefault};
    by(&options);
    check_raw();
}

static void framed_with(void (*by)(const struct pclog_options *), enum pclog_growth growth, uint64_t prefault) {
    struct pclog_options options = {.mode = PCLOG_FRAMED,
                                    .growth = growth,
                                    .window_bytes = 65536,
                                    .growth_bytes = 8192,
                                    .prefault_bytes = prefault};
    struct pclog_report report;
    by(&options);
    check_framed(WRITERS, EACH, &report);
    EQUAL(report.tombstones, 0);
}

static void threads_raw(void) {
    raw_with(by_threads, PCLOG_FALLOCATE, 0);
}

static void threads_raw_ftruncate(void) {
    raw_with(by_threads, PCLOG_FTRUNCATE, 0);
}

static void threads_raw_helper(void) {
    raw_with(by_threads, PCLOG_FALLOCATE, 1 << 20);
}

static void threads_framed(void) {
    framed_with(by_threads, PCLOG_FALLOCATE, 0);
}

static void threads_framed_helper(void) {
    framed_with(by_threads, PCLOG_FTRUNCATE, 1 << 20);
}

static void processes_raw(void) {
    raw_with(by_processes, PCLOG_FALLOCATE, 0);
}

static void processes_raw_ftruncate(void) {
    raw_with(by_processes, PCLOG_FTRUNCATE, 0);
}

static void processes_framed(void) {
    framed_with(by_processes, PCLOG_FALLOCATE, 0);
}

static void processes_framed_helper(void) {
    framed_with(by_processes, PCLOG_FTRUNCATE, 1 << 20);
}

static int uses_its_parents(void *context) {
    pclog_writer *writer;
    return pclog_writer_open(context, &writer);
}

static void a_child_must_open_its_own(void) {
    pclog *log = open_log(NULL);
    EQUAL(in_child(uses_its_parents, log), PCLOG_INVALID);
    EQUAL(pclog_close(log), PCLOG_OK);
}

const struct test SHARE_TESTS[] = {
    {"threads_raw", threads_raw},
    {"threads_raw_ftruncate", threads_raw_ftruncate},
    {"threads_raw_helper", threads_raw_helper},
    {"threads_framed", threads_framed},
    {"threads_framed_helper", threads_framed_helper},
    {"processes_raw", processes_raw},
    {"processes_raw_ftruncate", processes_raw_ftruncate},
    {"processes_framed", processes_framed},
    {"processes_framed_helper", processes_framed_helper},
    {"a_child_must_open_its_own", a_child_must_open_its_own},
    {NULL, NULL},
};
