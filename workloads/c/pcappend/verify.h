/* Reading back: is each record there, whole, once, in its writer's order, and nothing between them?
 *
 * A few words a writer suffice. Of each writer it is known up to which number records were seen, and which of the 64
 * before it are missing: one of those that comes late is out of order, and what falls out of the 64 is lost. */
#ifndef PCAPPEND_VERIFY_H
#define PCAPPEND_VERIFY_H

#include "record.h"

/* What a writer has tried. */
struct offer {
    uint64_t records, bytes;
};

struct findings {
    uint64_t records, record_bytes; /* found whole, each counted once */
    uint64_t lost_records, lost_bytes;
    uint64_t doubled_records;    /* ... or more than 64 places late */
    uint64_t torn_records;       /* a label, and not its record after it */
    uint64_t disordered_records; /* after a later one of the same writer */
    uint64_t hole_bytes;         /* zeros where a record should begin, or in one */
    uint64_t stray_bytes;        /* other bytes that belong to no record */
    uint64_t byte_sum;           /* of all bytes of the records found */
};

struct verifier;

/* Ready to look for what these writers offered, each record padded to blocks (1: not padded); NULL without memory. */
struct verifier *verifier_new(const struct lengths *lengths, size_t block_bytes, uint32_t writers,
                              const struct offer *offers);
void verifier_free(struct verifier *verifier);

/* Reads a file from its beginning; false with errno where it cannot be read. */
bool verifier_read(struct verifier *verifier, const char *path);

/* The same of one record that somebody else found, in a frame. */
void verifier_add(struct verifier *verifier, const uint8_t *record, size_t bytes);

/* Adds what somebody else found beside the records. */
void verifier_add_junk(struct verifier *verifier, uint64_t hole_bytes, uint64_t stray_bytes);

/* Counts what was lost, and tells. */
struct findings verifier_conclude(struct verifier *verifier);

/* Whether nothing was lost, doubled, torn, out of order, and nothing else stood there. */
bool findings_are_good(const struct findings *findings);

#endif
