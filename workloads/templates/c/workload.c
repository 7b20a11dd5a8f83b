/* A workload: reads a file once, block by block, and reports the slowest block.
 *
 *     workload FILE [--no-handshake] */
#define _GNU_SOURCE

#include "pagecage_workload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK_BYTES = 64 * 1024 };

static double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int count, char **words) {
    bool is_by_hand = count == 3 && strcmp(words[2], "--no-handshake") == 0;
    if (count != 2 && !is_by_hand) {
        pagecage_fail(PAGECAGE_BAD_ARGUMENTS, "usage: workload FILE [--no-handshake]");
    }

    /* The set-up is not measured: it ends with `ready`. */
    struct stat status;
    int file = open(words[1], O_RDONLY);
    if (file < 0 || fstat(file, &status) != 0) {
        pagecage_fail(PAGECAGE_FAILED, "cannot open %s: %s", words[1], strerror(errno));
    }
    char *block = malloc(BLOCK_BYTES);
    if (block == NULL) {
        pagecage_fail(PAGECAGE_FAILED, "not enough memory for a block");
    }
    if (!is_by_hand && !pagecage_wait_for_go(0)) {
        return PAGECAGE_DONE; /* the run was cancelled */
    }

    /* The work is measured: from `go` to `end`. */
    double begun = now_seconds(), slowest = 0.0;
    uint64_t bytes = 0, blocks = 0;
    for (;;) {
        double block_begun = now_seconds();
        ssize_t found = read(file, block, BLOCK_BYTES);
        if (found < 0) {
            pagecage_fail(PAGECAGE_FAILED, "cannot read %s: %s", words[1], strerror(errno));
        }
        if (found == 0) {
            break;
        }
        double seconds = now_seconds() - block_begun;
        slowest = seconds > slowest ? seconds : slowest;
        bytes += (uint64_t)found;
        blocks++;
    }
    struct pagecage_message end = pagecage_begin("end");
    pagecage_number(&end, "seconds", now_seconds() - begun);
    pagecage_count(&end, "bytes", bytes);
    pagecage_count(&end, "blocks", blocks);
    pagecage_count(&end, "distinct_bytes", bytes);
    pagecage_number(&end, "covered_fraction", (double)bytes / (double)status.st_size);
    pagecage_open_object(&end, "response");
    pagecage_number(&end, "slowest_block_us", slowest * 1e6);
    pagecage_close_object(&end);
    pagecage_send(&end);
    if (!is_by_hand) {
        pagecage_wait_for_close();
    }
    return PAGECAGE_DONE;
}
