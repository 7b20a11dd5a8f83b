/* The article's own design ("Appending a Bit, in Pieces", 2025-04-06), reimplemented from its
 * description, including its defects. Chunks of 32 KiB are mapped into a ring of four entries that
 * is never cleaned, so that replaced chunks stay mapped. The file grows by ftruncate(2) under a
 * spin lock. A writer that does not get a lock within 10 ms gives up; its record is lost, and its
 * reserved space stays zero. */
#define _GNU_SOURCE

#include "method_tables.h"
#include "method.h"

#include "contract/clock.h"
#include "contract/failure.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CHUNK_BYTES = 32 << 10, RING_CHUNKS = 4, LOCK_TIMEOUT_NS = 10000000 };

/* Shared by all processes. The article keeps it in a mapped file; here it lasts for one run. */
struct mmlog_metadata {
    _Atomic bool is_locked;
    _Atomic uint64_t file_size, cursor;
};

struct chunk {
    uint64_t start;
    uint8_t *mapping; /* NULL in an unused entry */
};

/* Shared by the threads of a process. */
struct mmlog_handle {
    int file;
    struct mmlog_metadata *metadata;
    _Atomic bool head_locked;
    uint32_t head;
    struct chunk ring[RING_CHUNKS];
};

static void create_mmlog(struct job *job) {
    job->shared = mmap(NULL, sizeof(struct mmlog_metadata), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (job->shared == MAP_FAILED) {
        fail(FAILED, "not enough memory for the log's metadata");
    }
    job->note = "as the article has it: who waits 10 ms for a lock loses its record, and mappings are never given back";
}

static void enter_mmlog(struct process *process) {
    struct mmlog_handle *handle = calloc(1, sizeof *handle);
    if (handle == NULL) {
        fail(FAILED, "not enough memory for a log");
    }
    handle->file = open_log(process->job, O_RDWR);
    handle->metadata = process->job->shared;
    process->own = handle;
}

static void open_mmlog(struct writer *writer) {
    writer->file = open_log(writer->job, O_RDWR);
}

static int lock(_Atomic bool *word) {
    uint64_t begin = 0;
    while (atomic_exchange(word, true)) {
        uint64_t now = now_ns();
        begin = begin == 0 ? now : begin;
        if (now - begin > LOCK_TIMEOUT_NS) {
            return ETIMEDOUT;
        }
    }
    return 0;
}

static int expand(struct mmlog_handle *handle, uint64_t end) {
    struct mmlog_metadata *metadata = handle->metadata;
    int error = lock(&metadata->is_locked);
    if (error != 0) {
        return error;
    }
    uint64_t wanted = (end + CHUNK_BYTES - 1) / CHUNK_BYTES * CHUNK_BYTES;
    if (wanted > atomic_load(&metadata->file_size)) {
        error = ftruncate(handle->file, (off_t)wanted) == 0 ? 0 : errno;
        if (error == 0) {
            atomic_store(&metadata->file_size, wanted);
        }
    }
    atomic_store(&metadata->is_locked, false);
    return error;
}

static uint8_t *find_chunk(struct mmlog_handle *handle, uint64_t start) {
    for (int at = 0; at < RING_CHUNKS; at++) {
        if (handle->ring[at].mapping != NULL && handle->ring[at].start == start) {
            return handle->ring[at].mapping;
        }
    }
    uint8_t *mapping = mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, handle->file, (off_t)start);
    if (mapping == MAP_FAILED) {
        return NULL;
    }
    handle->head = (handle->head + 1) % RING_CHUNKS;
    handle->ring[handle->head] = (struct chunk){start, mapping};
    return mapping;
}

/* Copies bytes that lie within one chunk. */
static int put_in_chunk(struct mmlog_handle *handle, uint64_t offset, const uint8_t *bytes, size_t count) {
    int error = lock(&handle->head_locked);
    if (error != 0) {
        return error;
    }
    uint8_t *mapping = find_chunk(handle, offset / CHUNK_BYTES * CHUNK_BYTES);
    error = mapping == NULL ? errno : 0;
    atomic_store(&handle->head_locked, false);
    if (error == 0) {
        memcpy(mapping + offset % CHUNK_BYTES, bytes, count);
    }
    return error;
}

static int put_by_call(struct mmlog_handle *handle, uint64_t offset, const uint8_t *bytes, size_t count) {
    ssize_t done = pwrite(handle->file, bytes, count, (off_t)offset);
    return done == (ssize_t)count ? 0 : done < 0 ? errno : EIO;
}

static int append_mmlog(struct writer *writer, const uint8_t *record, size_t bytes) {
    struct mmlog_handle *handle = writer->process->own;
    uint64_t offset = atomic_fetch_add(&handle->metadata->cursor, bytes), end = offset + bytes;
    if (end > atomic_load(&handle->metadata->file_size)) {
        int error = expand(handle, end);
        if (error != 0) {
            return error;
        }
    }
    uint64_t crossings = (end - 1) / CHUNK_BYTES - offset / CHUNK_BYTES;
    if (crossings > 1) {
        return put_by_call(handle, offset, record, bytes);
    }
    size_t first = crossings == 0 ? bytes : CHUNK_BYTES - offset % CHUNK_BYTES;
    int error = put_in_chunk(handle, offset, record, first);
    return error != 0 || crossings == 0 ? error : put_in_chunk(handle, offset + first, record + first, bytes - first);
}

/* The article leaves the file as it was grown. Truncated, its missing records can be told from
 * unused space. */
static void finish_mmlog(struct job *job) {
    struct mmlog_metadata *metadata = job->shared;
    if (truncate(job->path, (off_t)atomic_load(&metadata->cursor)) != 0) {
        fail(FAILED, "cannot truncate %s: %s", job->path, strerror(errno));
    }
}

const struct method method_seed_mmlog = {
    .name = "seed-mmlog",
    .summary = "the article's own design with its defects: it loses records, which is a wrong result",
    .create = create_mmlog,
    .enter = enter_mmlog,
    .open = open_mmlog,
    .append = append_mmlog,
    .finish = finish_mmlog,
};
