#define _GNU_SOURCE

#include "arena.h"

#include "contract/clock.h"
#include "contract/failure.h"
#include "futex.h"

#include <sys/mman.h>

struct arena *arena_new(uint32_t writers) {
    size_t bytes = sizeof(struct arena) + writers * sizeof(struct outcome);
    struct arena *arena = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (arena == MAP_FAILED) {
        fail(FAILED, "no memory for the figures of %u writers", writers);
    }
    arena->writers = writers;
    return arena;
}

void arena_park(struct arena *arena) {
    atomic_fetch_add(&arena->parked, 1);
    futex_wake_all(&arena->parked);
    while (atomic_load(&arena->gate) == 0) {
        futex_wait(&arena->gate, 0, 0);
    }
}

void arena_release(struct arena *arena, double max_seconds) {
    uint64_t now = now_ns();
    atomic_store(&arena->released_ns, now);
    if (max_seconds > 0.0) {
        atomic_store(&arena->deadline_ns, now + (uint64_t)(max_seconds * SECOND_NS));
    }
    atomic_store(&arena->gate, 1);
    futex_wake_all(&arena->gate);
}
