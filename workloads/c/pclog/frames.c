#include "frames.h"

#include "crc32c.h"

static uint32_t crc_of_header(uint32_t seed, uint64_t offset, uint32_t length, uint32_t writer, uint32_t epoch) {
    struct {
        uint64_t offset;
        uint32_t length, writer, epoch, zero;
    } header = {offset, length, writer, epoch & 0xffff, 0};
    return pclog_crc32c(seed, &header, sizeof header);
}

static uint16_t check_of(uint32_t crc) {
    return (uint16_t)(crc ^ crc >> 16);
}

uint32_t pclog_frames_seed(uint64_t log_id) {
    return pclog_crc32c(0, &log_id, sizeof log_id);
}

struct pclog_frame pclog_frame_of(uint32_t seed, uint64_t offset, uint32_t writer, uint32_t epoch, const void *record,
                                  size_t bytes) {
    uint32_t crc = crc_of_header(seed, offset, (uint32_t)bytes, writer, epoch);
    uint64_t whole = pclog_crc32c(crc, record, bytes);
    return (struct pclog_frame){whole << 32 | bytes, writer, (uint16_t)epoch, check_of(crc)};
}

uint64_t pclog_tombstone(uint32_t seed, uint64_t offset, uint64_t bytes) {
    uint32_t length = PCLOG_TOMBSTONE | (uint32_t)bytes;
    return (uint64_t)crc_of_header(seed, offset, length, 0, 0) << 32 | length;
}

static struct pclog_entry parse_tombstone(const struct pclog_mapping *mapping, uint64_t offset, uint64_t word) {
    struct pclog_entry entry = {.kind = PCLOG_ENTRY_DAMAGED};
    uint64_t bytes = (uint32_t)word & ~PCLOG_TOMBSTONE;
    bool possible = bytes >= 8 && bytes % 8 == 0 && bytes <= mapping->end - offset;
    if (possible && word == pclog_tombstone(mapping->seed, offset, bytes)) {
        entry.kind = PCLOG_ENTRY_TOMBSTONE;
        entry.total_bytes = bytes;
    }
    return entry;
}

/* The short check comes first: without it a scan of damaged bytes would read to the end of every
 * record that they might be. */
static struct pclog_entry parse_frame(const struct pclog_mapping *mapping, uint64_t offset, uint64_t word) {
    struct pclog_entry entry = {.kind = PCLOG_ENTRY_DAMAGED};
    struct pclog_frame frame;
    uint32_t length = (uint32_t)word;
    uint64_t total = pclog_frame_total(length);
    if (length == 0 || length > PCLOG_RECORD_MAX || total > mapping->end - offset) {
        return entry;
    }
    memcpy(&frame, mapping->area.base + offset, sizeof frame);
    uint32_t crc = crc_of_header(mapping->seed, offset, length, frame.writer, frame.epoch);
    if (frame.check != check_of(crc)) {
        return entry;
    }
    if (pclog_crc32c(crc, mapping->area.base + offset + sizeof frame, length) == word >> 32) {
        entry = (struct pclog_entry){PCLOG_ENTRY_RECORD, total, length, frame.writer, frame.epoch};
    }
    return entry;
}

static inline uint64_t word_at(const struct pclog_mapping *mapping, uint64_t offset) {
    return atomic_load_explicit((_Atomic uint64_t *)(void *)(mapping->area.base + offset), memory_order_acquire);
}

struct pclog_entry pclog_entry_at(const struct pclog_mapping *mapping, uint64_t offset) {
    uint64_t word = word_at(mapping, offset);
    if (word == 0) {
        return (struct pclog_entry){.kind = PCLOG_ENTRY_UNCOMMITTED};
    }
    return (uint32_t)word & PCLOG_TOMBSTONE ? parse_tombstone(mapping, offset, word)
                                            : parse_frame(mapping, offset, word);
}

uint64_t pclog_next_frame(const struct pclog_mapping *mapping, uint64_t offset, uint64_t until) {
    for (; offset < until; offset += 8) {
        if (word_at(mapping, offset) == 0) { /* mostly space that was grown ahead */
            continue;
        }
        enum pclog_entry_kind kind = pclog_entry_at(mapping, offset).kind;
        if (kind == PCLOG_ENTRY_RECORD || kind == PCLOG_ENTRY_TOMBSTONE) {
            return offset;
        }
    }
    return until;
}
