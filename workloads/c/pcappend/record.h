/* Records whose bytes identify their writer and number, and show whether they are complete.
 *
 * A record of 16 bytes or more begins with a label of two words: a mark with the writer and the
 * sequence number, and a hash of the mark. Every 512 bytes follows a stamp, which is the label's
 * second word plus the offset, so that no part of a record equals the same part of another. Between
 * stamps is a pattern of the writer, without zeros. A shorter record repeats one byte: the writer's
 * number, counted from 1. */
#ifndef PCAPPEND_RECORD_H
#define PCAPPEND_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RECORD_LABELLED_BYTES = 16, RECORD_SHORT_WRITERS = 255, RECORD_MAX_BYTES = 64 << 20 };

#define RECORD_SEQUENCES (UINT64_C(1) << 40)

/* The range of a run's record lengths. The length of a record follows from its writer and
 * number. */
struct lengths {
    size_t low, high;
};

/* Returns the length of a record. */
size_t record_bytes(const struct lengths *lengths, uint32_t writer, uint64_t sequence);

/* Fills a new buffer with the writer's pattern, or with its byte if records are short. */
void record_fill(uint8_t *buffer, size_t bytes, uint32_t writer);

/* Turns such a buffer into the record of this number; changes a few words only. */
void record_stamp(uint8_t *buffer, size_t bytes, uint32_t writer, uint64_t sequence);

/* Reads a label; false if there is none. */
bool record_label(const uint8_t *bytes, uint32_t *writer, uint64_t *sequence);

/* Returns the pattern for record_is_whole(), slightly longer than `max_bytes`; NULL without
 * memory. */
uint8_t *record_pattern(size_t max_bytes);

/* Returns whether all bytes of a record match its label. */
bool record_is_whole(const uint8_t *record, size_t bytes, uint32_t writer, uint64_t sequence, const uint8_t *pattern);

#endif
