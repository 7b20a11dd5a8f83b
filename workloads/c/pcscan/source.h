/* A file to scan, and the progress of its scan. */
#ifndef PCSCAN_SOURCE_H
#define PCSCAN_SOURCE_H

#include "plan.h"

struct source {
    const char *path;
    int file;
    size_t len;
    const uint8_t *map; /* NULL with --io read */
    uint64_t expected;  /* with --expect-sidecars */
    size_t done_bytes;
    uint64_t pieces;
    uint64_t sum;
    uint64_t started_ns, ended_ns;
};

/* Opens the file; maps it with --io mmap, and reads its sidecar with --expect-sidecars. */
struct source source_open(const struct plan *plan, const char *path);

/* Scans the next window, waiting for the disk if necessary; `buffer` has the plan's buf_bytes. */
void source_scan_window(struct source *source, const struct plan *plan, uint8_t *buffer);

#endif
