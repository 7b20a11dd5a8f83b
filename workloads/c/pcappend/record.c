#include "record.h"

#include <stdlib.h>
#include <string.h>

enum { MARK = 0xA7, STAMP_EVERY = 512, PATTERN_PERIOD = 251 };

/* The finaliser of SplitMix64: each input bit changes half of the output bits on average. */
static uint64_t mix(uint64_t word) {
    word = (word ^ (word >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ (word >> 27)) * UINT64_C(0x94d049bb133111eb);
    return word ^ (word >> 31);
}

static uint64_t mark_of(uint32_t writer, uint64_t sequence) {
    return MARK | (uint64_t)writer << 8 | sequence << 24;
}

size_t record_bytes(const struct lengths *lengths, uint32_t writer, uint64_t sequence) {
    if (lengths->low == lengths->high) {
        return lengths->low;
    }
    return lengths->low + mix(~mark_of(writer, sequence)) % (lengths->high - lengths->low + 1);
}

static uint8_t pattern_at(size_t offset) {
    return (uint8_t)(1 + offset % PATTERN_PERIOD);
}

uint8_t *record_pattern(size_t max_bytes) {
    uint8_t *pattern = malloc(max_bytes + PATTERN_PERIOD);
    for (size_t at = 0; pattern != NULL && at < max_bytes + PATTERN_PERIOD; at++) {
        pattern[at] = pattern_at(at);
    }
    return pattern;
}

void record_fill(uint8_t *buffer, size_t bytes, uint32_t writer) {
    for (size_t at = 0; at < bytes; at++) {
        buffer[at] = bytes < RECORD_LABELLED_BYTES ? (uint8_t)(writer + 1) : pattern_at(at + writer % PATTERN_PERIOD);
    }
}

static size_t stamp_bytes(size_t bytes, size_t at) {
    return bytes - at < sizeof(uint64_t) ? bytes - at : sizeof(uint64_t);
}

void record_stamp(uint8_t *buffer, size_t bytes, uint32_t writer, uint64_t sequence) {
    if (bytes < RECORD_LABELLED_BYTES) {
        return;
    }
    uint64_t label[2] = {mark_of(writer, sequence)};
    label[1] = mix(label[0]);
    memcpy(buffer, label, sizeof label);
    for (size_t at = STAMP_EVERY; at < bytes; at += STAMP_EVERY) {
        uint64_t stamp = label[1] + at;
        memcpy(buffer + at, &stamp, stamp_bytes(bytes, at));
    }
}

bool record_label(const uint8_t *bytes, uint32_t *writer, uint64_t *sequence) {
    uint64_t label[2];
    memcpy(label, bytes, sizeof label);
    *writer = (uint32_t)(label[0] >> 8 & 0xffff);
    *sequence = label[0] >> 24;
    return (label[0] & 0xff) == MARK && label[1] == mix(label[0]);
}

bool record_is_whole(const uint8_t *record, size_t bytes, uint32_t writer, uint64_t sequence, const uint8_t *pattern) {
    uint64_t root = mix(mark_of(writer, sequence));
    const uint8_t *expected = pattern + writer % PATTERN_PERIOD;
    for (size_t from = 0; from < bytes; from += STAMP_EVERY) {
        size_t to = from + STAMP_EVERY < bytes ? from + STAMP_EVERY : bytes;
        size_t head = from == 0 ? RECORD_LABELLED_BYTES : stamp_bytes(bytes, from);
        uint64_t stamp = root + from;
        bool stamped = from == 0 || memcmp(record + from, &stamp, head) == 0;
        if (!stamped || memcmp(record + from + head, expected + from + head, to - from - head) != 0) {
            return false;
        }
    }
    return true;
}
