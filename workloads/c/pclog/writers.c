#include "handle.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

static struct pclog_slot *take_slot(pclog *log, bool (*accepts)(uint64_t owner)) {
    size_t first = (size_t)(log->self % PCLOG_WRITERS_MAX);
    for (size_t at = 0; at < PCLOG_WRITERS_MAX; at++) {
        struct pclog_slot *slot = &log->meta->slots[(first + at) % PCLOG_WRITERS_MAX];
        uint64_t owner = atomic_load(&slot->owner);
        if (accepts(owner) && atomic_compare_exchange_strong(&slot->owner, &owner, log->self)) {
            atomic_store(&slot->pending_bytes, 0);
            atomic_store(&slot->pending_offset, PCLOG_OFFSET_UNKNOWN);
            return slot;
        }
    }
    return NULL;
}

static bool is_free(uint64_t owner) {
    return owner == 0;
}

/* Taking over the slot of a dead writer discards what it had pending; a hole of it then has no
 * owner (recover.c). */
static bool is_free_or_dead(uint64_t owner) {
    return owner == 0 || pclog_life_of(owner) == PCLOG_DEAD;
}

static void release_slot(struct pclog_slot *slot) {
    atomic_store(&slot->pending_bytes, 0);
    atomic_store(&slot->pending_offset, PCLOG_OFFSET_UNKNOWN);
    atomic_store(&slot->owner, 0);
}

/* While the slot is taken no process can gain exclusive access. Checks for changes made before
 * that. */
static int check(pclog *log) {
    struct pclog_parameters parameters;
    struct stat file;
    int status = pclog_exclusive_cancel(log);
    if (status != PCLOG_OK) {
        return status;
    }
    if (!pclog_parameters_read(log->meta, &parameters)) {
        return PCLOG_FOREIGN;
    }
    uint64_t grown = atomic_load(&log->meta->grown_bytes); /* before the size, which may grow */
    if (fstat(log->file, &file) != 0) {
        return PCLOG_SYSTEM;
    }
    if (parameters.inode != file.st_ino || parameters.epoch != log->epoch) {
        return PCLOG_STALE;
    }
    return (uint64_t)file.st_size < grown ? PCLOG_TRUNCATED : PCLOG_OK;
}

static pclog_writer *new_writer(pclog *log, struct pclog_slot *slot) {
    /* Aligned, so that no other thread's data shares its cache lines. */
    pclog_writer *writer = aligned_alloc(64, pclog_round_up(sizeof *writer, 64));
    if (writer != NULL) {
        *writer = (pclog_writer){.cursor = &log->meta->cursor,
                                 .slot = slot,
                                 .log = log,
                                 .id = atomic_fetch_add(&log->meta->writers, 1) + 1,
                                 .framed = log->options.mode == PCLOG_FRAMED};
        atomic_store(&slot->writer, writer->id);
    }
    return writer;
}

int pclog_writer_open(pclog *log, pclog_writer **writer) {
    if (log == NULL || writer == NULL) {
        return PCLOG_INVALID;
    }
    if (pclog_self() != log->self) {
        return PCLOG_INVALID; /* a child of the process that opened the log */
    }
    struct pclog_slot *slot = take_slot(log, is_free);
    slot = slot != NULL ? slot : take_slot(log, is_free_or_dead);
    if (slot == NULL) {
        return PCLOG_TOO_MANY;
    }
    int status = check(log);
    pclog_writer *new = status == PCLOG_OK ? new_writer(log, slot) : NULL;
    if (new == NULL) {
        release_slot(slot);
        return status != PCLOG_OK ? status : PCLOG_SYSTEM;
    }
    pthread_mutex_lock(&log->membership_lock);
    if (log->writers++ == 0) {
        pclog_prefaulter_start(log);
    }
    pthread_mutex_unlock(&log->membership_lock);
    *writer = new;
    return PCLOG_OK;
}

int pclog_writer_close(pclog_writer *writer) {
    if (writer == NULL) {
        return PCLOG_INVALID;
    }
    pclog *log = writer->log;
    pclog_window_leave(writer);
    pthread_mutex_lock(&log->membership_lock);
    if (--log->writers == 0) {
        pclog_prefaulter_stop(log);
    }
    pthread_mutex_unlock(&log->membership_lock);
    release_slot(writer->slot);
    free(writer);
    return PCLOG_OK;
}

uint32_t pclog_writer_id(const pclog_writer *writer) {
    return writer->id;
}
