#define _GNU_SOURCE

#include "ring_buffer.h"

#include "contract/failure.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static bool map_at(uint8_t *place, size_t bytes, int file) {
    int flags = MAP_SHARED | MAP_FIXED | MAP_POPULATE;
    return mmap(place, bytes, PROT_READ | PROT_WRITE, flags, file, 0) == place;
}

uint8_t *ring_buffer_new(size_t bytes) {
    int file = memfd_create("pcappend", MFD_CLOEXEC);
    uint8_t *place = mmap(NULL, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (file < 0 || place == MAP_FAILED || ftruncate(file, (off_t)bytes) != 0 || !map_at(place, bytes, file) ||
        !map_at(place + bytes, bytes, file)) {
        fail(FAILED, "not enough memory for a ring buffer of %zu bytes: %s", bytes, strerror(errno));
    }
    close(file);
    return place;
}

void ring_buffer_free(uint8_t *buffer, size_t bytes) {
    munmap(buffer, 2 * bytes);
}
