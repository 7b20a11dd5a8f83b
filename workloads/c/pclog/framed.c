/* Appending a frame: announce its length, reserve space, publish its offset, copy, commit. In this
 * order the table of writers identifies the owner of every hole at any moment (recover.c). */
#include "framed.h"

#include "frames.h"

static void announce(struct pclog_slot *slot, uint64_t bytes) {
    atomic_store_explicit(&slot->pending_bytes, bytes,
                          memory_order_release); /* not visible before the last offset is cleared */
    PCLOG_TEST_POINT(after_announce);
}

static void clear_pending(struct pclog_slot *slot) {
    atomic_store_explicit(&slot->pending_bytes, 0, memory_order_release);
    atomic_store_explicit(&slot->pending_offset, PCLOG_OFFSET_UNKNOWN, memory_order_release);
}

/* Stores a commit word; sets `stored` to false if another process has closed the hole. */
static int commit(pclog_writer *writer, uint64_t offset, uint64_t word, bool *stored) {
    uint64_t open = 0;
    *stored = true;
    if (!pclog_window_enter(writer, offset)) {
        return pclog_write_at(writer->log, &word, sizeof word, offset);
    }
    size_t at = offset - writer->window->start;
    _Atomic uint64_t *target = (_Atomic uint64_t *)(void *)(writer->window->area.base + at);
    *stored = atomic_compare_exchange_strong_explicit(target, &open, word, memory_order_release, memory_order_relaxed);
    if (!pclog_area_lost(&writer->window->area, at, sizeof word)) {
        return PCLOG_OK;
    }
    *stored = true; /* the result of a store to a lost page means nothing */
    return pclog_write_at(writer->log, &word, sizeof word, offset);
}

/* Space reserved on a full disk stays announced in the table, and is closed when there is room
 * again. A writer that retries therefore leaves one hole only. */
static int close_own_hole(pclog_writer *writer) {
    bool stored;
    struct pclog_slot *slot = writer->slot;
    uint64_t bytes = atomic_load(&slot->pending_bytes), offset = atomic_load(&slot->pending_offset);
    int status = pclog_grow(writer->log, offset + bytes);
    for (uint64_t at = offset; status == PCLOG_OK && at < offset + bytes;) {
        uint64_t part = min_u64(offset + bytes - at, PCLOG_TOMBSTONE_MAX);
        status = commit(writer, at, pclog_tombstone(writer->log->seed, at, part), &stored);
        at += part;
    }
    if (status == PCLOG_OK) {
        clear_pending(slot);
        writer->has_hole = false;
    }
    return status;
}

static int append_slow(pclog_writer *writer, const struct pclog_frame *frame, const void *record, size_t bytes,
                       uint64_t offset, bool *stored) {
    int status = pclog_grow(writer->log, offset + pclog_frame_total(bytes));
    if (status == PCLOG_OK) {
        status =
            pclog_copy(writer, &frame->writer, sizeof *frame - sizeof frame->commit, offset + sizeof frame->commit);
    }
    if (status == PCLOG_OK) {
        status = pclog_copy(writer, record, bytes, offset + sizeof *frame);
    }
    PCLOG_TEST_POINT(before_commit);
    return status == PCLOG_OK ? commit(writer, offset, frame->commit, stored) : status;
}

/* Copies the whole frame to mapped memory; false if one of its pages is lost. */
static bool append_fast(pclog_writer *writer, const struct pclog_frame *frame, const void *record, size_t bytes,
                        uint64_t at, bool *stored) {
    unsigned char *target = writer->base + at;
    memcpy(target + sizeof frame->commit, &frame->writer, sizeof *frame - sizeof frame->commit);
    pclog_copy_bytes(target + sizeof *frame, record, bytes);
    if (pclog_area_lost(&writer->window->area, at, sizeof *frame + bytes)) {
        return false;
    }
    PCLOG_TEST_POINT(before_commit);
    uint64_t open = 0;
    *stored = atomic_compare_exchange_strong_explicit((_Atomic uint64_t *)(void *)target, &open, frame->commit,
                                                      memory_order_release, memory_order_relaxed);
    return !pclog_area_lost(&writer->window->area, at, sizeof frame->commit);
}

static int append_once(pclog_writer *writer, const void *record, size_t bytes, uint64_t *offset, bool *stored) {
    const pclog *log = writer->log;
    struct pclog_slot *slot = writer->slot;
    uint64_t total = pclog_frame_total(bytes);
    announce(slot, total);
    *offset = atomic_fetch_add_explicit(writer->cursor, total, memory_order_acq_rel);
    PCLOG_TEST_POINT(after_reserve);
    atomic_store_explicit(&slot->pending_offset, *offset, memory_order_release);
    PCLOG_TEST_POINT(after_publish);
    struct pclog_frame frame = pclog_frame_of(log->seed, *offset, writer->id, log->epoch, record, bytes);
    uint64_t at = *offset - writer->from;
    bool fits = total <= writer->room && at <= writer->room - total;
    if (fits && append_fast(writer, &frame, record, bytes, at, stored)) {
        return PCLOG_OK;
    }
    return append_slow(writer, &frame, record, bytes, *offset, stored);
}

int pclog_append_framed(pclog_writer *writer, const void *record, size_t bytes, uint64_t *offset) {
    int status = writer->has_hole ? close_own_hole(writer) : PCLOG_OK;
    /* Repeats if another process took this one for dead and closed the hole. */
    for (bool stored = false; status == PCLOG_OK && !stored;) {
        status = append_once(writer, record, bytes, offset, &stored);
        writer->has_hole = status != PCLOG_OK;
        if (status == PCLOG_OK) {
            clear_pending(writer->slot);
        }
    }
    return status;
}
