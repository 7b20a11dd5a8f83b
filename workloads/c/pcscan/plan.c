/* Parsing the command line. */
#define _GNU_SOURCE

#include "plan.h"

#include "contract/failure.h"
#include "contract/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char HELP[] =
    "Scans several files in one epoll loop, one window of each in turn, beside a timerfd heartbeat.\n\n"
    "  --files FILE...     the files to scan\n"
    "  --io mmap|read      map the files, or use read(2), which blocks on regular files despite O_NONBLOCK\n"
    "  --expect-sidecars   compare the checksum with FILE.json (needs --stride 512)\n"
    "  --stride N          sum one byte out of every N (512)\n"
    "  --window N          bytes between two polls for events (2M)\n"
    "  --buf N             bytes per read (64K)\n"
    "  --heartbeat-us N    period of the heartbeat in microseconds; 0 disables it\n"
    "  --max-seconds S     stop after this time\n"
    "  --no-handshake      start without waiting for `go`, and exit at the end\n\n"
    "Exit codes: 0 done, 1 failed or wrong checksum, 2 bad arguments, 77 not possible on this host.\n";

static void check(const struct plan *plan) {
    if (plan->file_count == 0) {
        fail(BAD_ARGUMENTS, "--files needs at least one file (see `pcscan-c --help`)");
    }
    if (plan->stride == 0 || plan->stride > 4096 || (plan->stride & (plan->stride - 1)) != 0) {
        fail(BAD_ARGUMENTS, "--stride must be a power of two, at most 4096");
    }
    if (plan->expect_sidecars && plan->stride != 512) {
        fail(BAD_ARGUMENTS, "--expect-sidecars needs --stride 512, for which sidecars have a checksum");
    }
    if (plan->buf_bytes == 0 || plan->buf_bytes % 4096 != 0 || plan->window_bytes == 0 ||
        plan->window_bytes % plan->buf_bytes != 0) {
        fail(BAD_ARGUMENTS, "--buf must be a multiple of 4096, and --window a multiple of --buf");
    }
}

/* Applies an option without a value; returns false for any other word. */
static bool take_flag(struct plan *plan, const char *word) {
    if (strcmp(word, "--expect-sidecars") == 0) {
        plan->expect_sidecars = true;
    } else if (strcmp(word, "--no-handshake") == 0) {
        plan->handshake = false;
    } else if (strcmp(word, "--help") == 0) {
        fputs(HELP, stdout);
        exit(DONE);
    } else {
        return false;
    }
    return true;
}

static void take_io(struct plan *plan, const char *value) {
    plan->mapped = strcmp(value, "mmap") == 0;
    if (!plan->mapped && strcmp(value, "read") != 0 && strcmp(value, "conventional") != 0) {
        fail(BAD_ARGUMENTS, "--io must be mmap or read (conventional), not '%s'", value);
    }
}

static void take_option(struct plan *plan, const char *word, const char *value) {
    if (strcmp(word, "--io") == 0) {
        take_io(plan, value);
    } else if (strcmp(word, "--stride") == 0) {
        plan->stride = number_of(word, value);
    } else if (strcmp(word, "--window") == 0) {
        plan->window_bytes = number_of(word, value);
    } else if (strcmp(word, "--buf") == 0) {
        plan->buf_bytes = number_of(word, value);
    } else if (strcmp(word, "--heartbeat-us") == 0) {
        plan->heartbeat_us = number_of(word, value);
    } else if (strcmp(word, "--max-seconds") == 0) {
        plan->max_seconds = positive_of(word, value, "seconds");
    } else {
        fail(BAD_ARGUMENTS, "unknown option '%s' (see `pcscan-c --help`)", word);
    }
}

struct plan plan_read(int count, char **words) {
    struct plan plan = {.mapped = true, .handshake = true, .stride = 512};
    plan.window_bytes = 2 << 20;
    plan.buf_bytes = 64 << 10;
    for (int at = 1; at < count; at++) {
        if (take_flag(&plan, words[at])) {
            continue;
        }
        if (strcmp(words[at], "--files") == 0) {
            plan.files = &words[at + 1];
            for (plan.file_count = 0; at + 1 < count && strncmp(words[at + 1], "--", 2) != 0; at++) {
                plan.file_count++;
            }
            continue;
        }
        if (at + 1 == count) {
            fail(BAD_ARGUMENTS, "'%s' needs a value (see `pcscan-c --help`)", words[at]);
        }
        take_option(&plan, words[at], words[at + 1]);
        at++;
    }
    check(&plan);
    return plan;
}
