#define _GNU_SOURCE

#include "ring_buffer.h"

#include "contract/failure.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static bool map_at(uint8_t *address, size_t bytes, int file) {
    int flags = MAP_SHARED | MAP_FIXED | MAP_POPULATE;
    return mmap(address, bytes, PROT_READ | PROT_WRITE, flags, file, 0) == address;
}

uint8_t *ring_buffer_new(size_t bytes) {
    int file = memfd_create("pcappend", MFD_CLOEXEC);
    uint8_t *address = mmap(NULL, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (file < 0 || address == MAP_FAILED || ftruncate(file, (off_t)bytes) != 0 || !map_at(address, bytes, file) ||
        !map_at(address + bytes, bytes, file)) {
        fail(FAILED, "not enough memory for a ring buffer of %zu bytes: %s", bytes, strerror(errno));
    }
    close(file);
    return address;
}

void ring_buffer_free(uint8_t *buffer, size_t bytes) {
    munmap(buffer, 2 * bytes);
}
