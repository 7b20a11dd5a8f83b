/* One file to scan, and how far the scan has come. */
#ifndef PCSCAN_SOURCE_H
#define PCSCAN_SOURCE_H

#include "plan.h"

struct source {
    const char *path;
    int file;
    size_t len;
    const uint8_t *map; /* NULL where the file is read */
    uint64_t expected;  /* with --expect-sidecars */
    size_t done_bytes;
    uint64_t pieces;
    uint64_t sum;
    uint64_t started_ns, ended_ns;
};

/* Opens the file, maps it where it is scanned that way, reads its sidecar where that is asked for. */
struct source source_open(const struct plan *plan, const char *path);

/* Looks at the next window, waiting for the disk where it must; `buffer` has the plan's buf_bytes. */
void source_scan_window(struct source *source, const struct plan *plan, uint8_t *buffer);

#endif
