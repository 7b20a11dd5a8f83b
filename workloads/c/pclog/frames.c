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

static struct pclog_seen see_closed(const struct pclog_text *text, uint64_t offset, uint64_t word) {
    struct pclog_seen seen = {.kind = PCLOG_IS_BROKEN};
    uint64_t bytes = (uint32_t)word & ~PCLOG_TOMBSTONE;
    bool possible = bytes >= 8 && bytes % 8 == 0 && bytes <= text->end - offset;
    if (possible && word == pclog_tombstone(text->seed, offset, bytes)) {
        seen.kind = PCLOG_IS_CLOSED;
        seen.total_bytes = bytes;
    }
    return seen;
}

/* The short check first: it keeps a scan of damaged bytes from reading to the end of every record that they might be.
 */
static struct pclog_seen see_frame(const struct pclog_text *text, uint64_t offset, uint64_t word) {
    struct pclog_seen seen = {.kind = PCLOG_IS_BROKEN};
    struct pclog_frame frame;
    uint32_t length = (uint32_t)word;
    uint64_t total = pclog_frame_total(length);
    if (length == 0 || length > PCLOG_RECORD_MAX || total > text->end - offset) {
        return seen;
    }
    memcpy(&frame, text->area.base + offset, sizeof frame);
    uint32_t crc = crc_of_header(text->seed, offset, length, frame.writer, frame.epoch);
    if (frame.check != check_of(crc)) {
        return seen;
    }
    if (pclog_crc32c(crc, text->area.base + offset + sizeof frame, length) == word >> 32) {
        seen = (struct pclog_seen){PCLOG_IS_FRAME, total, length, frame.writer, frame.epoch};
    }
    return seen;
}

static inline uint64_t word_at(const struct pclog_text *text, uint64_t offset) {
    return atomic_load_explicit((_Atomic uint64_t *)(void *)(text->area.base + offset), memory_order_acquire);
}

struct pclog_seen pclog_frame_at(const struct pclog_text *text, uint64_t offset) {
    uint64_t word = word_at(text, offset);
    if (word == 0) {
        return (struct pclog_seen){.kind = PCLOG_IS_OPEN};
    }
    return (uint32_t)word & PCLOG_TOMBSTONE ? see_closed(text, offset, word) : see_frame(text, offset, word);
}

uint64_t pclog_next_frame(const struct pclog_text *text, uint64_t offset, uint64_t until) {
    for (; offset < until; offset += 8) {
        if (word_at(text, offset) == 0) { /* what was grown ahead, mostly */
            continue;
        }
        enum pclog_kind kind = pclog_frame_at(text, offset).kind;
        if (kind == PCLOG_IS_FRAME || kind == PCLOG_IS_CLOSED) {
            return offset;
        }
    }
    return until;
}
