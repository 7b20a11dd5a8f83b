/* One shared mapping of a file that has its full length from the start. The methods differ in
 * how they reserve space: by atomic addition, or under a lock, under which they also copy the
 * record. */
#define _GNU_SOURCE

#include "method_tables.h"
#include "method.h"
#include "lock.h"

#include "contract/failure.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Returns the length of all records together. */
static uint64_t bytes_of_all(const struct job *job) {
    uint64_t all = 0;
    if (job->lengths.low == job->lengths.high) {
        return job->memory->writers * job->plan->ops * job->lengths.low;
    }
    for (uint32_t writer = 0; writer < job->memory->writers; writer++) {
        for (uint64_t sequence = 0; sequence < job->plan->ops; sequence++) {
            all += record_bytes(&job->lengths, writer, sequence);
        }
    }
    return all;
}

static void create_mapped(struct job *job) {
    uint64_t bytes = bytes_of_all(job);
    int file = open_log(job, O_RDWR);
    if (fallocate(file, 0, 0, (off_t)bytes) != 0) {
        fail(errno == EOPNOTSUPP ? CANNOT_HERE : FAILED, "cannot extend %s to %llu bytes: %s", job->path,
             (unsigned long long)bytes, strerror(errno));
    }
    job->shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (job->shared == MAP_FAILED) {
        fail(FAILED, "cannot map %s: %s", job->path, strerror(errno));
    }
    close(file);
    locks_make(&job->memory->locks);
    job->note = "the file is as long as all records from the start and mapped once: nothing grows";
}

static void open_mapped(struct writer *writer) {
    writer->file = open_log(writer->job, O_RDWR);
}

static int append_atomic(struct writer *writer, const uint8_t *record, size_t bytes) {
    uint64_t offset = atomic_fetch_add_explicit(&writer->job->memory->cursor, bytes, memory_order_relaxed);
    memcpy((uint8_t *)writer->job->shared + offset, record, bytes);
    return 0;
}

/* Requires the lock. */
static void put(struct writer *writer, const uint8_t *record, size_t bytes) {
    _Atomic uint64_t *cursor = &writer->job->memory->cursor;
    uint64_t offset = atomic_load_explicit(cursor, memory_order_relaxed);
    memcpy((uint8_t *)writer->job->shared + offset, record, bytes);
    atomic_store_explicit(cursor, offset + bytes, memory_order_relaxed);
}

static int append_by_mutex(struct writer *writer, const uint8_t *record, size_t bytes) {
    lock_take_mutex(&writer->job->memory->locks);
    put(writer, record, bytes);
    lock_give_mutex(&writer->job->memory->locks);
    return 0;
}

static int append_by_semaphore(struct writer *writer, const uint8_t *record, size_t bytes) {
    lock_take_semaphore(&writer->job->memory->locks);
    put(writer, record, bytes);
    lock_give_semaphore(&writer->job->memory->locks);
    return 0;
}

static int append_by_futex(struct writer *writer, const uint8_t *record, size_t bytes) {
    lock_take_futex(&writer->job->memory->locks);
    put(writer, record, bytes);
    lock_give_futex(&writer->job->memory->locks);
    return 0;
}

/* With --max-seconds part of the file may be unused. */
static void finish_mapped(struct job *job) {
    if (truncate(job->path, (off_t)atomic_load(&job->memory->cursor)) != 0) {
        fail(FAILED, "cannot truncate %s: %s", job->path, strerror(errno));
    }
}

#define MAPPED(method_name, text, function)                                                                            \
    {.name = method_name,                                                                                              \
     .summary = text,                                                                                                  \
     .create = create_mapped,                                                                                          \
     .open = open_mapped,                                                                                              \
     .append = function,                                                                                               \
     .finish = finish_mapped}

const struct method method_mapped_atomic =
    MAPPED("mapped-atomic", "one preallocated mapping, space reserved by atomic addition", append_atomic);
const struct method method_mapped_mutex =
    MAPPED("mapped-mutex", "the same under a robust, process-shared pthread mutex", append_by_mutex);
const struct method method_mapped_semaphore =
    MAPPED("mapped-semaphore", "the same under a semaphore", append_by_semaphore);
const struct method method_mapped_futex =
    MAPPED("mapped-futex", "the same under a lock of one futex word", append_by_futex);
