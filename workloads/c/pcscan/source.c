/* Opening files, reading their sidecars, and summing their bytes. */
#define _GNU_SOURCE

#include "source.h"

#include "contract/clock.h"
#include "contract/failure.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns the number that follows `"key":"` in a sidecar, one line of JSON written by pcgen. */
static uint64_t sum_in(const char *text, const char *key, const char *path) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "\"%s\":\"", key);
    const char *found = strstr(text, wanted);
    if (found == NULL) {
        fail(FAILED, "%s is not a complete sidecar of pcgen", path);
    }
    return strtoull(found + strlen(wanted), NULL, 10);
}

static uint64_t expected_sum(const char *data) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s.json", data) >= (int)sizeof path) {
        fail(FAILED, "the path %s is too long", data);
    }
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t room = 0;
    if (file == NULL || getline(&text, &room, file) < 0) {
        fail(FAILED, "cannot read the sidecar %s: %s", path, strerror(errno));
    }
    fclose(file);
    uint64_t sum = sum_in(text, "stride512_sum", path);
    free(text);
    return sum;
}

struct source source_open(const struct plan *plan, const char *path) {
    struct source source = {.path = path, .file = open(path, O_RDONLY | O_CLOEXEC)};
    struct stat status;
    if (source.file < 0 || fstat(source.file, &status) != 0) {
        fail(FAILED, "cannot open %s: %s", path, strerror(errno));
    }
    if (!S_ISREG(status.st_mode) || status.st_size == 0) {
        fail(FAILED, "%s is empty or not a regular file", path);
    }
    source.len = (size_t)status.st_size;
    if (plan->mapped) {
        void *map = mmap(NULL, source.len, PROT_READ, MAP_SHARED, source.file, 0);
        if (map == MAP_FAILED) {
            fail(CANNOT_HERE, "cannot map %s: %s", path, strerror(errno));
        }
        source.map = map;
    }
    source.expected = plan->expect_sidecars ? expected_sum(path) : 0;
    return source;
}

/* Returns the sum of every stride-th byte. Volatile, so that the compiler keeps every read. */
static __attribute__((noinline)) uint64_t touch(const uint8_t *bytes, size_t len, size_t stride) {
    const volatile uint8_t *place = bytes;
    uint64_t sum = 0;
    for (size_t at = 0; at < len; at += stride) {
        sum += place[at];
    }
    return sum;
}

static size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

static const uint8_t *piece(const struct source *source, uint8_t *buffer, size_t len) {
    if (source->map != NULL) {
        return source->map + source->done_bytes;
    }
    for (size_t have = 0; have < len;) {
        ssize_t more = pread(source->file, buffer + have, len - have, (off_t)(source->done_bytes + have));
        if (more <= 0) {
            fail(FAILED, "cannot read %s: %s", source->path, more < 0 ? strerror(errno) : "it ended early");
        }
        have += (size_t)more;
    }
    return buffer;
}

void source_scan_window(struct source *source, const struct plan *plan, uint8_t *buffer) {
    if (source->started_ns == 0) {
        source->started_ns = now_ns();
    }
    size_t end = min_size(source->done_bytes + plan->window_bytes, source->len);
    while (source->done_bytes < end) {
        size_t len = min_size(plan->buf_bytes, end - source->done_bytes);
        source->sum += touch(piece(source, buffer, len), len, plan->stride);
        source->done_bytes += len;
        source->pieces++;
    }
    source->ended_ns = now_ns();
}
