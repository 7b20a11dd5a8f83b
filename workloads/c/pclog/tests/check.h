/* A small test runner. Each test has a process and a folder of its own, so that a crash counts as a
 * failure. */
#ifndef PCLOG_TESTS_CHECK_H
#define PCLOG_TESTS_CHECK_H

#include "../layout.h"
#include "../pclog.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct test {
    const char *name;
    void (*run)(void);
};

/* One list per theme; each ends with an empty entry. */
extern const struct test APPEND_TESTS[], FRAME_TESTS[], SHARE_TESTS[], CREATE_TESTS[], REBUILD_TESTS[], RECOVER_TESTS[],
    TRIM_TESTS[], FAIL_TESTS[], LIMIT_TESTS[];

void failed(const char *file, int line, const char *what, long long seen, long long wanted) __attribute__((noreturn));

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            failed(__FILE__, __LINE__, #condition, 0, 1);                                                              \
        }                                                                                                              \
    } while (0)

#define EQUAL(seen, wanted)                                                                                            \
    do {                                                                                                               \
        long long is_ = (long long)(seen), should_ = (long long)(wanted);                                              \
        if (is_ != should_) {                                                                                          \
            failed(__FILE__, __LINE__, #seen " is " #wanted, is_, should_);                                            \
        }                                                                                                              \
    } while (0)

/* The log in the test's folder. */
#define LOG "log"
#define META "log.pclog"

pclog *open_log(const struct pclog_options *options);
pclog_writer *open_writer(pclog *log);
void close_both(pclog *log, pclog_writer *writer);

/* Runs work(context) in a child; returns its exit status, or 128 plus the signal. */
int in_child(int (*work)(void *), void *context);
pid_t begin_child(int (*work)(void *), void *context);
int end_child(pid_t pid);
/* Returns the identity of a process that has ended and was reaped. */
uint64_t dead_identity(void);

/* Reads a whole file; its length in `bytes`. */
unsigned char *read_file(const char *path, size_t *bytes);
void write_file(const char *path, const void *bytes, size_t count);
uint64_t size_of(const char *path);

/* Maps the metadata of LOG, so that tests can change it. */
struct pclog_meta *map_meta(void);

/* A record that holds its writer and number, and a pattern that shows whether it is complete. */
size_t make_record(unsigned char *to, uint32_t who, uint32_t number, size_t bytes);
bool record_is_whole(const unsigned char *record, size_t bytes);
uint32_t writer_of(const unsigned char *record);
uint32_t number_of(const unsigned char *record);

/* Checks that LOG has exactly `each` complete records of every writer, in the writer's order. */
void check_framed(uint32_t writers, uint32_t each, struct pclog_report *report);

#endif
