#define _GNU_SOURCE

#include "frames.h"
#include "handle.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_BYTES ((size_t)1 << 20)

/* Returns the offset behind the last non-zero byte of a file; 0 if there is none, -1 on errors. */
static int64_t nonzero_end(int file, uint64_t size) {
    unsigned char *chunk = malloc(CHUNK_BYTES);
    int64_t found = chunk == NULL ? -1 : 0;
    for (uint64_t end = size; found == 0 && end > 0;) {
        size_t bytes = end < CHUNK_BYTES ? end : CHUNK_BYTES;
        ssize_t have = pread(file, chunk, bytes, (off_t)(end - bytes));
        if (have < (ssize_t)bytes) {
            found = -1;
            break;
        }
        size_t left = bytes;
        while (left > 0 && chunk[left - 1] == 0) {
            left--;
        }
        found = left > 0 ? (int64_t)(end - bytes + left) : 0;
        end -= bytes;
    }
    free(chunk);
    return found;
}

static uint64_t max_u64(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* A raw log ends at its cursor or behind its last non-zero byte, whichever is later. If the cursor
 * may be too old, non-zero bytes are the only data beyond it that differ from space grown ahead. */
static int inspect_raw(const pclog *log, struct pclog_cursor known, struct pclog_contents *contents) {
    int64_t last = known.exact ? 0 : nonzero_end(log->file, contents->size);
    contents->end = last < 0 ? 0 : min_u64(max_u64(known.offset, (uint64_t)last), contents->size);
    return last < 0 ? PCLOG_SYSTEM : PCLOG_OK;
}

/* Every byte beyond the end of a framed log must be zero. */
static int inspect_framed(const pclog *log, const struct pclog_parameters *parameters,
                          struct pclog_contents *contents) {
    int64_t last = nonzero_end(log->file, contents->size);
    if (last < 0) {
        return PCLOG_SYSTEM;
    }
    return pclog_frames_summarise(log->file, parameters->log_id, (uint64_t)last, contents);
}

int pclog_inspect(const pclog *log, struct pclog_parameters *parameters, struct pclog_cursor known,
                  struct pclog_contents *contents) {
    struct stat status;
    *contents = (struct pclog_contents){0};
    int head = pclog_head_ensure(log->file, parameters);
    if (head != PCLOG_OK) {
        return head;
    }
    if (fstat(log->file, &status) != 0) {
        return PCLOG_SYSTEM;
    }
    parameters->inode = status.st_ino;
    contents->size = (uint64_t)status.st_size;
    return parameters->mode == PCLOG_RAW ? inspect_raw(log, known, contents)
                                         : inspect_framed(log, parameters, contents);
}

static bool another_boot(const struct pclog_parameters *parameters) {
    char boot[40];
    pclog_boot_id(boot);
    return memcmp(boot, parameters->boot_id, sizeof boot) != 0;
}

/* The values that decide whether metadata is stale. */
struct snapshot {
    struct pclog_parameters parameters;
    uint64_t grown;
    struct stat file;
};

/* Reads grown_bytes before the size of the file, because the file may grow in between. */
static int take_snapshot(const pclog *log, struct snapshot *snapshot) {
    if (!pclog_parameters_read(log->meta, &snapshot->parameters)) {
        return PCLOG_FOREIGN;
    }
    snapshot->grown = atomic_load(&log->meta->grown_bytes);
    return fstat(log->file, &snapshot->file) == 0 ? PCLOG_OK : PCLOG_SYSTEM;
}

static bool stale(const struct snapshot *snapshot) {
    return another_boot(&snapshot->parameters) || snapshot->parameters.inode != snapshot->file.st_ino ||
           (uint64_t)snapshot->file.st_size < snapshot->grown;
}

/* Requires exclusive access. A process that dies in here leaves the old parameters, still stale. */
static int rebuild(pclog *log, const struct pclog_parameters *old, const struct stat *file) {
    struct pclog_meta *meta = log->meta;
    struct pclog_contents contents;
    struct pclog_parameters parameters = *old;
    struct pclog_cursor known = parameters.inode == file->st_ino
                                    ? (struct pclog_cursor){atomic_load(&meta->cursor), !another_boot(old)}
                                    : PCLOG_CURSOR_NONE;
    int status = pclog_inspect(log, &parameters, known, &contents);
    if (status != PCLOG_OK) {
        return status;
    }
    parameters.pid_namespace = pclog_pid_namespace();
    pclog_boot_id(parameters.boot_id);
    parameters.epoch = (uint32_t)max_u64(old->epoch, contents.epoch) + 1;
    pclog_parameters_seal(&parameters);
    uint32_t other = (atomic_load(&meta->valid_copy) & 1) ^ 1;
    meta->parameters[other] = parameters;
    atomic_store(&meta->cursor, contents.end);
    atomic_store(&meta->writers, (uint32_t)max_u64(atomic_load(&meta->writers), contents.writers));
    atomic_store(&meta->grower, 0);
    atomic_store(&meta->valid_copy, other);
    return PCLOG_OK;
}

int pclog_rebuild_if_stale(pclog *log) {
    struct snapshot snapshot;
    int status = take_snapshot(log, &snapshot);
    if (status != PCLOG_OK) {
        return status;
    }
    if (!another_boot(&snapshot.parameters) && snapshot.parameters.pid_namespace != pclog_pid_namespace()) {
        return PCLOG_OTHER_NAMESPACE;
    }
    status = pclog_exclusive_wait(log);
    status = status == PCLOG_OK ? take_snapshot(log, &snapshot) : status;
    if (status != PCLOG_OK || !stale(&snapshot)) {
        return status;
    }
    status = pclog_exclusive_begin(log);
    if (status != PCLOG_OK) {
        return status == PCLOG_LIVE_WRITERS ? PCLOG_STALE : status;
    }
    status = take_snapshot(log, &snapshot);
    if (status == PCLOG_OK && stale(&snapshot)) { /* not rebuilt meanwhile */
        status = rebuild(log, &snapshot.parameters, &snapshot.file);
    }
    int ended = pclog_exclusive_end(log);
    return status != PCLOG_OK ? status : ended;
}
