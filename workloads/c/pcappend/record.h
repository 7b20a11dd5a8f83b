/* What is appended: bytes that tell a verifier whose record they are, which one, and whether all of it is there.
 *
 * A record of 16 bytes or more begins with a label of two words: a mark with writer and sequence number, and a mix of
 * it. The label's second word is stamped anew every 512 bytes, so that no part of a record passes for the same part of
 * another one; between stamps stands a pattern of the writer's, without a zero. A shorter record is one byte, repeated:
 * the writer's number, from 1. */
#ifndef PCAPPEND_RECORD_H
#define PCAPPEND_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RECORD_LABELLED_BYTES = 16, RECORD_SHORT_WRITERS = 255, RECORD_MOST_BYTES = 64 << 20 };

#define RECORD_SEQUENCES (UINT64_C(1) << 40)

/* The lengths that a run's records have; which has which follows from its writer and number. */
struct lengths {
    size_t low, high;
};

/* The length of a record. */
size_t record_bytes(const struct lengths *lengths, uint32_t writer, uint64_t sequence);

/* Fills a buffer with the writer's pattern, or with its byte where records are short; once. */
void record_fill(uint8_t *buffer, size_t bytes, uint32_t writer);

/* Makes of such a buffer the record of this number: some words change, and nothing else. */
void record_stamp(uint8_t *buffer, size_t bytes, uint32_t writer, uint64_t sequence);

/* Reads a label; false where none stands there. */
bool record_label(const uint8_t *bytes, uint32_t *writer, uint64_t *sequence);

/* The pattern that record_is_whole() compares with: `most_bytes` and a little more; NULL without memory. */
uint8_t *record_pattern(size_t most_bytes);

/* Whether a record is the one that its label says. */
bool record_is_whole(const uint8_t *record, size_t bytes, uint32_t writer, uint64_t sequence, const uint8_t *pattern);

#endif
