/* What pcscan-c is asked to do, and the sentence it ends with where it cannot. */
#ifndef PCSCAN_PLAN_H
#define PCSCAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum exit_code { DONE = 0, FAILED = 1, BAD_ARGUMENTS = 2, CANNOT_HERE = 77 };

struct plan {
    char **files;
    size_t file_count;
    bool mapped;           /* --io mmap; otherwise read(2) */
    bool expect_sidecars;  /* each FILE.json says what the file adds up to */
    bool handshake;
    size_t stride;         /* one byte in so many is looked at */
    size_t window_bytes;   /* the loop looks for events after each window */
    size_t buf_bytes;      /* length of one read */
    uint64_t heartbeat_us; /* 0 for none */
    double max_seconds;    /* 0 for no limit */
};

/* Reads the arguments; ends the process with BAD_ARGUMENTS where they make no sense. */
struct plan plan_read(int count, char **words);

/* Says one sentence on stderr and ends the process. */
_Noreturn void fail(enum exit_code code, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
