/* Verification that the file has each record completely, once, in its writer's order, and nothing
 * else.
 *
 * A ledger of a few words per writer suffices: the highest number found, and which of the 64 before
 * it are missing. A missing record that appears later is out of order; one that drops out of the 64
 * is lost. */
#ifndef PCAPPEND_VERIFY_H
#define PCAPPEND_VERIFY_H

#include "record.h"

/* The records that a writer attempted. */
struct offer {
    uint64_t records, bytes;
};

struct findings {
    uint64_t records, record_bytes; /* complete, each counted once */
    uint64_t lost_records, lost_bytes;
    uint64_t doubled_records;    /* or found more than 64 records late */
    uint64_t torn_records;       /* a label that is not followed by its record */
    uint64_t disordered_records; /* behind a later record of the same writer */
    uint64_t hole_bytes;         /* zeros outside complete records */
    uint64_t stray_bytes;        /* other bytes outside complete records */
    uint64_t byte_sum;           /* of all bytes of the records found */
};

struct verifier;

/* Creates a verifier for these writers' records, padded to blocks (1: no padding); NULL without
 * memory. */
struct verifier *verifier_new(const struct lengths *lengths, size_t block_bytes, uint32_t writers,
                              const struct offer *offers);
void verifier_free(struct verifier *verifier);

/* Verifies a whole file; false, with errno set, if it cannot be read. */
bool verifier_read(struct verifier *verifier, const char *path);

/* Verifies one record that the caller found in a frame. */
void verifier_add(struct verifier *verifier, const uint8_t *record, size_t bytes);

/* Adds bytes that the caller found outside records. */
void verifier_add_junk(struct verifier *verifier, uint64_t hole_bytes, uint64_t stray_bytes);

/* Counts the lost records and returns all findings. */
struct findings verifier_conclude(struct verifier *verifier);

/* Returns whether every record is complete, unique and in order, and nothing else is in the
 * file. */
bool findings_are_good(const struct findings *findings);

#endif
