#define _GNU_SOURCE

#include "frames.h"
#include "handle.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_BYTES ((size_t)1 << 20)

/* After the last byte that is not zero, looked for from the end of the file; 0 where there is none, -1 where it cannot
 * be read. */
static int64_t last_not_zero(int file, uint64_t size) {
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

static uint64_t larger(uint64_t one, uint64_t other) {
    return one > other ? one : other;
}

static uint64_t smaller(uint64_t one, uint64_t other) {
    return one < other ? one : other;
}

/* A raw log ends where its cursor stood, or behind its last byte that is not zero where that is later: of the bytes
 * beyond a cursor that may be too old none can be told from what was grown ahead, except that it is not zero. */
static int find_raw(const pclog *log, struct pclog_cursor known, struct pclog_found *found) {
    int64_t last = known.exact ? 0 : last_not_zero(log->file, found->size);
    found->end = last < 0 ? 0 : smaller(larger(known.offset, (uint64_t)last), found->size);
    return last < 0 ? PCLOG_SYSTEM : PCLOG_OK;
}

/* Beyond the end of a framed log every byte must be zero. */
static int find_framed(const pclog *log, const struct pclog_terms *terms, struct pclog_found *found) {
    int64_t last = last_not_zero(log->file, found->size);
    if (last < 0) {
        return PCLOG_SYSTEM;
    }
    return pclog_frames_survey(log->file, terms->log_id, (uint64_t)last, found);
}

int pclog_find(const pclog *log, struct pclog_terms *terms, struct pclog_cursor known, struct pclog_found *found) {
    struct stat status;
    *found = (struct pclog_found){0};
    int head = pclog_head_ensure(log->file, terms);
    if (head != PCLOG_OK) {
        return head;
    }
    if (fstat(log->file, &status) != 0) {
        return PCLOG_SYSTEM;
    }
    terms->inode = status.st_ino;
    found->size = (uint64_t)status.st_size;
    return terms->mode == PCLOG_RAW ? find_raw(log, known, found) : find_framed(log, terms, found);
}

static bool another_boot(const struct pclog_terms *terms) {
    char boot[40];
    pclog_boot_id(boot);
    return memcmp(boot, terms->boot_id, sizeof boot) != 0;
}

/* What decides whether metadata are stale, taken together. */
struct look {
    struct pclog_terms terms;
    uint64_t grown;
    struct stat file;
};

/* How far it has grown before how long it is, since it may grow in between. */
static int look(const pclog *log, struct look *seen) {
    if (!pclog_terms_read(log->meta, &seen->terms)) {
        return PCLOG_FOREIGN;
    }
    seen->grown = atomic_load(&log->meta->grown_bytes);
    return fstat(log->file, &seen->file) == 0 ? PCLOG_OK : PCLOG_SYSTEM;
}

static bool stale(const struct look *seen) {
    return another_boot(&seen->terms) || seen->terms.inode != seen->file.st_ino ||
           (uint64_t)seen->file.st_size < seen->grown;
}

/* For who is alone with the log. Dying in here leaves the old terms, which are as stale as before. */
static int renew(pclog *log, const struct pclog_terms *old, const struct stat *file) {
    struct pclog_meta *meta = log->meta;
    struct pclog_found found;
    struct pclog_terms terms = *old;
    struct pclog_cursor known = terms.inode == file->st_ino
                                    ? (struct pclog_cursor){atomic_load(&meta->cursor), !another_boot(old)}
                                    : PCLOG_CURSOR_NONE;
    int status = pclog_find(log, &terms, known, &found);
    if (status != PCLOG_OK) {
        return status;
    }
    terms.pid_namespace = pclog_pid_namespace();
    pclog_boot_id(terms.boot_id);
    terms.epoch = (uint32_t)larger(old->epoch, found.epoch) + 1;
    pclog_terms_seal(&terms);
    uint32_t other = (atomic_load(&meta->which) & 1) ^ 1;
    meta->terms[other] = terms;
    atomic_store(&meta->cursor, found.end);
    atomic_store(&meta->writers, (uint32_t)larger(atomic_load(&meta->writers), found.writers));
    atomic_store(&meta->grower, 0);
    atomic_store(&meta->which, other);
    return PCLOG_OK;
}

int pclog_renew_if_stale(pclog *log) {
    struct look seen;
    int status = look(log, &seen);
    if (status != PCLOG_OK) {
        return status;
    }
    if (!another_boot(&seen.terms) && seen.terms.pid_namespace != pclog_pid_namespace()) {
        return PCLOG_OTHER_NAMESPACE;
    }
    status = pclog_alone_wait(log);
    status = status == PCLOG_OK ? look(log, &seen) : status;
    if (status != PCLOG_OK || !stale(&seen)) {
        return status;
    }
    status = pclog_alone_begin(log);
    if (status != PCLOG_OK) {
        return status == PCLOG_LIVE_WRITERS ? PCLOG_STALE : status;
    }
    status = look(log, &seen);
    if (status == PCLOG_OK && stale(&seen)) { /* another process may have done it meanwhile */
        status = renew(log, &seen.terms, &seen.file);
    }
    int ended = pclog_alone_end(log);
    return status != PCLOG_OK ? status : ended;
}
