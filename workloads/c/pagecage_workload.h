/* The workload's side of pagecage's handshake, version 1 (docs/HANDSHAKE.md).
 *
 * A workload prepares, waits for `go`, works, and reports. pagecage reads the kernel's counters
 * around the work, while the process exists. This header and pagecage_workload.c are the whole
 * library; `pagecage init --template c` copies both into a project. They need C11 and POSIX.
 *
 *     prepare();
 *     if (!pagecage_wait_for_go(0)) return PAGECAGE_DONE;
 *     double seconds = work();
 *     struct pagecage_message end = pagecage_begin("end");
 *     pagecage_number(&end, "seconds", seconds);
 *     pagecage_open_object(&end, "response");
 *     pagecage_number(&end, "speed", 1 / seconds);
 *     pagecage_close_object(&end);
 *     pagecage_send(&end);
 *     pagecage_wait_for_close();
 *
 * The functions are not thread-safe. A failure ends the process with one sentence on stderr. */
#ifndef PAGECAGE_WORKLOAD_H
#define PAGECAGE_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the protocol that this library speaks. */
#define PAGECAGE_PROTOCOL_VERSION 1

/* Exit codes, which tell pagecage the kind of a failure. */
enum pagecage_exit {
    PAGECAGE_DONE = 0,
    PAGECAGE_FAILED = 1,        /* the attempt went wrong, or its result is wrong */
    PAGECAGE_BAD_ARGUMENTS = 2, /* the arguments make no sense */
    PAGECAGE_CANNOT_HERE = 77,  /* this host cannot do it */
};

/* Prints one sentence on stderr, after the program's name, and exits. */
void pagecage_fail(enum pagecage_exit code, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));

/* Reports failures only if this function returns true. Among several processes that fail for the
 * same reason, one can then report it for all. */
void pagecage_report_failures_if(bool (*may_report)(void));

/* Prints `ready` and waits for `go`; returns false if stdin is closed instead, as when the run is
 * cancelled. `evicted_bytes` of the workload's files were dropped from the page cache by its own
 * set-up; otherwise pagecage would take this for the work of another process. */
bool pagecage_wait_for_go(uint64_t evicted_bytes);

/* Waits until stdin is closed, after `end`, so that pagecage can still read the process's counters. */
void pagecage_wait_for_close(void);

/* Prints `stopped`: the measured part ends here, and more work follows before `end`. */
void pagecage_stopped(void);

/* One message that is being written. */
struct pagecage_message {
    char *text;
    size_t length, capacity;
    bool needs_comma;
};

/* Begins a `sample` or an `end`. `end` needs the number `seconds`. */
struct pagecage_message pagecage_begin(const char *type);

/* These add one value, or with a key of NULL one element of an array. Text is UTF-8. A number must
 * be finite, because JSON has no other. A checksum is written as text, because readers that keep
 * numbers as doubles would round it. */
void pagecage_number(struct pagecage_message *message, const char *key, double value);
void pagecage_count(struct pagecage_message *message, const char *key, uint64_t value);
void pagecage_integer(struct pagecage_message *message, const char *key, int64_t value);
void pagecage_text(struct pagecage_message *message, const char *key, const char *value);
void pagecage_checksum(struct pagecage_message *message, const char *key, uint64_t value);
void pagecage_bool(struct pagecage_message *message, const char *key, bool value);
void pagecage_null(struct pagecage_message *message, const char *key);

/* Values that are added in between belong to the object or the array. */
void pagecage_open_object(struct pagecage_message *message, const char *key);
void pagecage_close_object(struct pagecage_message *message);
void pagecage_open_array(struct pagecage_message *message, const char *key);
void pagecage_close_array(struct pagecage_message *message);

/* Prints the message on one line, flushes it, and frees it. */
void pagecage_send(struct pagecage_message *message);

#ifdef __cplusplus
}
#endif

#endif
