/* What pcscan-c is asked to do. */
#ifndef PCSCAN_PLAN_H
#define PCSCAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct plan {
    char **files;
    size_t file_count;
    bool mapped;          /* --io mmap; otherwise read(2) */
    bool expect_sidecars; /* each FILE.json says what the file adds up to */
    bool handshake;
    size_t stride;         /* one byte in so many is looked at */
    size_t window_bytes;   /* the loop looks for events after each window */
    size_t buf_bytes;      /* length of one read */
    uint64_t heartbeat_us; /* 0 for none */
    double max_seconds;    /* 0 for no limit */
};

/* Reads the arguments; ends the process with BAD_ARGUMENTS where they make no sense. */
struct plan plan_read(int count, char **words);

#endif
