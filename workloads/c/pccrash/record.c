#include "shared_state.h"

#include "contract/failure.h"

#include <string.h>

static size_t length_of(uint32_t who, uint32_t number) {
    return 16 + (who * 97 + number * 61) % (RECORD_ROOM - 16);
}

static unsigned char byte_of(uint32_t who, uint32_t number, size_t at) {
    return (unsigned char)(1 + (who * 31 + number * 7 + at) % 255);
}

size_t record_make(unsigned char *to, uint32_t who, uint32_t number) {
    size_t bytes = length_of(who, number);
    memcpy(to, &who, sizeof who);
    memcpy(to + 4, &number, sizeof number);
    for (size_t at = 8; at < bytes; at++) {
        to[at] = byte_of(who, number, at);
    }
    return bytes;
}

static bool whole(const unsigned char *record, size_t bytes, uint32_t who, uint32_t number) {
    if (bytes != length_of(who, number)) {
        return false;
    }
    for (size_t at = 8; at < bytes; at++) {
        if (record[at] != byte_of(who, number, at)) {
            return false;
        }
    }
    return true;
}

struct counts {
    const struct shared_state *state;
    struct reading reading;
    uint32_t next[64];
};

/* Checks one record against its writer's sequence: an earlier number is a duplicate, a skipped one
 * is lost. */
static int count(const struct pclog_record *record, void *context) {
    struct counts *counts = context;
    uint32_t who, number;
    memcpy(&who, record->data, sizeof who);
    memcpy(&number, (const unsigned char *)record->data + 4, sizeof number);
    if (record->bytes < 16 || who >= counts->state->writers || !whole(record->data, record->bytes, who, number)) {
        counts->reading.torn++;
    } else if (number < counts->next[who]) {
        counts->reading.doubled++;
    } else {
        counts->reading.lost += number - counts->next[who];
        counts->next[who] = number + 1;
    }
    return 0;
}

struct reading read_back(const struct shared_state *state) {
    struct counts counts = {.state = state};
    int status = pclog_scan(state->log, count, &counts, &counts.reading.report);
    if (status != PCLOG_OK) {
        fail(FAILED, "cannot read %s back: %s", state->log, pclog_explain(status));
    }
    for (uint32_t who = 0; who < state->writers; who++) {
        uint32_t committed = atomic_load(&state->writer_states[who].committed);
        counts.reading.lost += committed > counts.next[who] ? committed - counts.next[who] : 0;
        counts.reading.doubled += counts.next[who] > committed + 1 ? counts.next[who] - committed - 1 : 0;
    }
    counts.reading.torn += counts.reading.report.corrupt_bytes > 0;
    return counts.reading;
}
