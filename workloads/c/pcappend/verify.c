#define _GNU_SOURCE

#include "verify.h"

#include "ledger.h"
#include "stream.h"

#include <stdlib.h>
#include <string.h>

enum { READ_BYTES = 1 << 20 };

struct verifier {
    struct lengths lengths;
    size_t block_bytes;
    uint32_t writers;
    struct ledger *ledgers; /* one per writer */
    uint8_t *pattern;
    struct findings found;
    bool in_torn; /* short records: no complete record since the last torn one */
};

struct verifier *verifier_new(const struct lengths *lengths, size_t block_bytes, uint32_t writers,
                              const struct offer *offers) {
    struct verifier *new = calloc(1, sizeof *new);
    if (new == NULL) {
        return NULL;
    }
    *new = (struct verifier){.lengths = *lengths, .block_bytes = block_bytes, .writers = writers};
    new->ledgers = calloc(writers, sizeof *new->ledgers);
    new->pattern = record_pattern(lengths->high);
    if (new->ledgers == NULL || new->pattern == NULL) {
        verifier_free(new);
        return NULL;
    }
    for (uint32_t writer = 0; writer < writers; writer++) {
        new->ledgers[writer].offered = offers[writer].records;
        new->found.lost_bytes += offers[writer].bytes;
    }
    return new;
}

void verifier_free(struct verifier *verifier) {
    free(verifier->ledgers);
    free(verifier->pattern);
    free(verifier);
}

static uint64_t sum_of(const uint8_t *bytes, size_t count) {
    uint64_t sum = 0;
    for (size_t at = 0; at < count; at++) {
        sum += bytes[at];
    }
    return sum;
}

static void count_junk(struct verifier *verifier, const uint8_t *bytes, size_t count) {
    for (size_t at = 0; at < count; at++) {
        *(bytes[at] == 0 ? &verifier->found.hole_bytes : &verifier->found.stray_bytes) += 1;
    }
}

static void count_record(struct verifier *verifier, const uint8_t *record, size_t bytes) {
    verifier->found.records++;
    verifier->found.record_bytes += bytes;
    verifier->found.byte_sum += sum_of(record, bytes);
}

/* Returns the length of the record whose label is here; 0 unless a writer offered it. */
static size_t labelled_bytes(const struct verifier *verifier, const uint8_t *bytes, uint32_t *writer,
                             uint64_t *sequence) {
    if (!record_label(bytes, writer, sequence) || *writer >= verifier->writers ||
        *sequence >= verifier->ledgers[*writer].offered) {
        return 0;
    }
    return record_bytes(&verifier->lengths, *writer, *sequence);
}

/* Counts the labelled record that begins here and returns its length; 0 if there is no complete
 * record. */
static size_t take_labelled(struct verifier *verifier, const uint8_t *bytes, size_t have) {
    uint32_t writer = 0;
    uint64_t sequence = 0;
    size_t wanted = have < RECORD_LABELLED_BYTES ? 0 : labelled_bytes(verifier, bytes, &writer, &sequence);
    if (wanted == 0) {
        return 0;
    }
    if (wanted > have || !record_is_whole(bytes, wanted, writer, sequence, verifier->pattern)) {
        verifier->found.torn_records++;
        return 0;
    }
    enum arrival arrival = ledger_record(&verifier->ledgers[writer], sequence);
    if (arrival == SEEN_BEFORE) {
        verifier->found.doubled_records++;
    } else {
        verifier->found.disordered_records += arrival == OUT_OF_ORDER;
        count_record(verifier, bytes, wanted);
    }
    return wanted;
}

/* As take_labelled, for short records. They have no number, so their order is unknown. In a run of
 * bytes that begin no record, only the first counts as a torn record. */
static size_t take_short(struct verifier *verifier, const uint8_t *bytes, size_t have) {
    size_t wanted = verifier->lengths.high;
    bool is_known = bytes[0] != 0 && bytes[0] <= verifier->writers;
    if (!is_known || wanted > have || memcmp(bytes, bytes + 1, wanted - 1) != 0) {
        bool torn = bytes[0] != 0 && !verifier->in_torn;
        verifier->found.torn_records += torn;
        verifier->in_torn |= torn;
        return 0;
    }
    verifier->in_torn = false;
    struct ledger *ledger = &verifier->ledgers[bytes[0] - 1];
    if (ledger->next < ledger->offered) {
        ledger->next++;
        count_record(verifier, bytes, wanted);
    } else {
        verifier->found.doubled_records++;
    }
    return wanted;
}

static size_t take_record(struct verifier *verifier, const uint8_t *bytes, size_t have) {
    bool is_short = verifier->lengths.high < RECORD_LABELLED_BYTES;
    return is_short ? take_short(verifier, bytes, have) : take_labelled(verifier, bytes, have);
}

static size_t padded(const struct verifier *verifier, size_t bytes) {
    return (bytes + verifier->block_bytes - 1) / verifier->block_bytes * verifier->block_bytes;
}

/* Returns the bytes to skip: a record with its zero padding, or else one byte, or one block, of
 * junk. */
static size_t step(struct verifier *verifier, const uint8_t *bytes, size_t have) {
    size_t taken = take_record(verifier, bytes, have);
    size_t end = padded(verifier, taken > 0 ? taken : 1);
    end = end < have ? end : have;
    for (size_t at = taken; at < end; at++) {
        if (taken == 0 || bytes[at] != 0) {
            count_junk(verifier, bytes + at, 1);
        }
    }
    return end;
}

bool verifier_read(struct verifier *verifier, const char *path) {
    size_t longest = padded(verifier, verifier->lengths.high);
    struct stream stream;
    if (!stream_open(&stream, path, longest, READ_BYTES)) {
        return false;
    }
    bool good = true;
    while ((good = stream_fill(&stream, longest)) && stream_available(&stream) > 0) {
        stream_skip(&stream, step(verifier, stream_at(&stream), stream_available(&stream)));
    }
    stream_close(&stream);
    return good;
}

void verifier_add(struct verifier *verifier, const uint8_t *record, size_t bytes) {
    size_t taken = take_record(verifier, record, bytes);
    count_junk(verifier, record + taken, bytes - taken);
}

void verifier_add_junk(struct verifier *verifier, uint64_t hole_bytes, uint64_t stray_bytes) {
    verifier->found.hole_bytes += hole_bytes;
    verifier->found.stray_bytes += stray_bytes;
}

struct findings verifier_conclude(struct verifier *verifier) {
    struct findings found = verifier->found;
    for (uint32_t writer = 0; writer < verifier->writers; writer++) {
        found.lost_records += ledger_lost(&verifier->ledgers[writer]);
    }
    found.lost_bytes -= found.record_bytes;
    return found;
}

bool findings_are_good(const struct findings *findings) {
    return findings->lost_records == 0 && findings->lost_bytes == 0 && findings->doubled_records == 0 &&
           findings->torn_records == 0 && findings->disordered_records == 0 && findings->hole_bytes == 0 &&
           findings->stray_bytes == 0;
}
