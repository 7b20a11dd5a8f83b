#define _GNU_SOURCE

#include "shared_memory.h"

#include "contract/clock.h"
#include "contract/failure.h"
#include "futex.h"

#include <sys/mman.h>

struct shared_memory *shared_memory_new(uint32_t writers) {
    size_t bytes = sizeof(struct shared_memory) + writers * sizeof(struct outcome);
    struct shared_memory *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
        fail(FAILED, "not enough memory for the results of %u writers", writers);
    }
    memory->writers = writers;
    return memory;
}

void gate_wait(struct shared_memory *memory) {
    atomic_fetch_add(&memory->waiting, 1);
    futex_wake_all(&memory->waiting);
    while (atomic_load(&memory->gate) == 0) {
        futex_wait(&memory->gate, 0, 0);
    }
}

void gate_open(struct shared_memory *memory, double max_seconds) {
    uint64_t now = now_ns();
    atomic_store(&memory->released_ns, now);
    if (max_seconds > 0.0) {
        atomic_store(&memory->deadline_ns, now + (uint64_t)(max_seconds * SECOND_NS));
    }
    atomic_store(&memory->gate, 1);
    futex_wake_all(&memory->gate);
}
