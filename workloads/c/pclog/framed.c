/* Appending a frame: announce its length, reserve, say where it stands, copy, commit. The table of writers so tells at
 * every moment whose a hole is (recover.c). */
#include "framed.h"

#include "frames.h"

static void announce(struct pclog_slot *slot, uint64_t bytes) {
    atomic_store_explicit(&slot->pending_bytes, bytes,
                          memory_order_release); /* not seen before the last place is gone */
    PCLOG_AT(after_announce);
}

static void done(struct pclog_slot *slot) {
    atomic_store_explicit(&slot->pending_bytes, 0, memory_order_release);
    atomic_store_explicit(&slot->pending_offset, PCLOG_NOWHERE, memory_order_release);
}

/* Stores a commit word wherever it is; false in `ours` where somebody has closed the place. */
static int commit(pclog_writer *writer, uint64_t offset, uint64_t word, bool *ours) {
    uint64_t open = 0;
    *ours = true;
    if (!pclog_window_enter(writer, offset)) {
        return pclog_place_again(writer->log, &word, sizeof word, offset);
    }
    size_t at = offset - writer->window->start;
    _Atomic uint64_t *place = (_Atomic uint64_t *)(void *)(writer->window->area.base + at);
    *ours = atomic_compare_exchange_strong_explicit(place, &open, word, memory_order_release, memory_order_relaxed);
    if (!pclog_area_lost(&writer->window->area, at, sizeof word)) {
        return PCLOG_OK;
    }
    *ours = true; /* what stood on a lost page says nothing */
    return pclog_place_again(writer->log, &word, sizeof word, offset);
}

/* A place that was reserved on a full disk stays this writer's, announced in the table, and is closed when there is
 * room again: so a writer that tries and tries makes one hole. */
static int close_own_hole(pclog_writer *writer) {
    bool ours;
    struct pclog_slot *slot = writer->slot;
    uint64_t bytes = atomic_load(&slot->pending_bytes), offset = atomic_load(&slot->pending_offset);
    int status = pclog_grow(writer->log, offset + bytes);
    for (uint64_t at = offset; status == PCLOG_OK && at < offset + bytes;) {
        uint64_t part = offset + bytes - at < PCLOG_JUMP_MAX ? offset + bytes - at : PCLOG_JUMP_MAX;
        status = commit(writer, at, pclog_tombstone(writer->log->seed, at, part), &ours);
        at += part;
    }
    if (status == PCLOG_OK) {
        done(slot);
        writer->has_hole = false;
    }
    return status;
}

static int by_the_slow_way(pclog_writer *writer, const struct pclog_frame *frame, const void *record, size_t bytes,
                           uint64_t offset, bool *ours) {
    int status = pclog_grow(writer->log, offset + pclog_frame_total(bytes));
    if (status == PCLOG_OK) {
        status =
            pclog_place(writer, &frame->writer, sizeof *frame - sizeof frame->commit, offset + sizeof frame->commit);
    }
    if (status == PCLOG_OK) {
        status = pclog_place(writer, record, bytes, offset + sizeof *frame);
    }
    PCLOG_AT(before_commit);
    return status == PCLOG_OK ? commit(writer, offset, frame->commit, ours) : status;
}

/* The whole frame on mapped memory; false where a page of it is lost. */
static bool by_the_quick_way(pclog_writer *writer, const struct pclog_frame *frame, const void *record, size_t bytes,
                             uint64_t at, bool *ours) {
    unsigned char *place = writer->base + at;
    memcpy(place + sizeof frame->commit, &frame->writer, sizeof *frame - sizeof frame->commit);
    pclog_copy(place + sizeof *frame, record, bytes);
    if (pclog_area_lost(&writer->window->area, at, sizeof *frame + bytes)) {
        return false;
    }
    PCLOG_AT(before_commit);
    uint64_t open = 0;
    *ours = atomic_compare_exchange_strong_explicit((_Atomic uint64_t *)(void *)place, &open, frame->commit,
                                                    memory_order_release, memory_order_relaxed);
    return !pclog_area_lost(&writer->window->area, at, sizeof frame->commit);
}

static int append_once(pclog_writer *writer, const void *record, size_t bytes, uint64_t *offset, bool *ours) {
    const pclog *log = writer->log;
    struct pclog_slot *slot = writer->slot;
    uint64_t total = pclog_frame_total(bytes);
    announce(slot, total);
    *offset = atomic_fetch_add_explicit(writer->cursor, total, memory_order_acq_rel);
    PCLOG_AT(after_reserve);
    atomic_store_explicit(&slot->pending_offset, *offset, memory_order_release);
    PCLOG_AT(after_publish);
    struct pclog_frame frame = pclog_frame_of(log->seed, *offset, writer->id, log->epoch, record, bytes);
    uint64_t at = *offset - writer->from;
    bool fits = total <= writer->room && at <= writer->room - total;
    if (fits && by_the_quick_way(writer, &frame, record, bytes, at, ours)) {
        return PCLOG_OK;
    }
    return by_the_slow_way(writer, &frame, record, bytes, *offset, ours);
}

int pclog_append_framed(pclog_writer *writer, const void *record, size_t bytes, uint64_t *offset) {
    int status = writer->has_hole ? close_own_hole(writer) : PCLOG_OK;
    for (bool ours = false;
         status == PCLOG_OK && !ours;) { /* again where somebody took us for dead and closed our place */
        status = append_once(writer, record, bytes, offset, &ours);
        writer->has_hole = status != PCLOG_OK;
        if (status == PCLOG_OK) {
            done(writer->slot);
        }
    }
    return status;
}
