/* The command line of pcscan-c. */
#ifndef PCSCAN_PLAN_H
#define PCSCAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct plan {
    char **files;
    size_t file_count;
    bool mapped;          /* --io mmap; otherwise read(2) */
    bool expect_sidecars; /* each FILE.json has the file's checksum */
    bool handshake;
    size_t stride;         /* distance of the bytes that are summed */
    size_t window_bytes;   /* the loop polls for events after each window */
    size_t buf_bytes;      /* bytes per read */
    uint64_t heartbeat_us; /* 0 for none */
    double max_seconds;    /* 0 for no limit */
};

/* Parses the arguments; exits with BAD_ARGUMENTS if they are invalid. */
struct plan plan_read(int count, char **words);

#endif
