/* The content of a framed log: its head, and the frames after it. */
#ifndef PCLOG_FRAMES_H
#define PCLOG_FRAMES_H

#include "handle.h"

/* ---- head.c ---- */

/* Returns PCLOG_FOREIGN if the file does not begin with a head. */
int pclog_head_read(int file, uint64_t *log_id);

/* Writes the head of a framed log if there is none, and sets log_id. The id is derived from the
 * file itself, so that concurrent creators write the same bytes. A file with a head is framed,
 * whatever mode was requested; a file with other content cannot become a framed log. */
int pclog_head_ensure(int file, struct pclog_parameters *parameters);

/* ---- frames.c ---- */

/* Returns the initial value of every CRC of a log. A frame's CRC continues with its offset, so
 * bytes of a frame that are copied elsewhere, into a record or another log, are not a valid frame
 * there. */
uint32_t pclog_frames_seed(uint64_t log_id);

/* Returns the frame of a record, including its commit word. */
struct pclog_frame pclog_frame_of(uint32_t seed, uint64_t offset, uint32_t writer, uint32_t epoch, const void *record,
                                  size_t bytes);
/* Returns the space in the file that a record needs. */
static inline uint64_t pclog_frame_total(uint64_t record_bytes) {
    return pclog_round_up(PCLOG_FRAME_BYTES + record_bytes, 8);
}

/* Returns the commit word of a closed hole; `bytes` is a multiple of 8, at most
 * PCLOG_TOMBSTONE_MAX. */
#define PCLOG_TOMBSTONE_MAX (((uint64_t)1 << 31) - 8)
uint64_t pclog_tombstone(uint32_t seed, uint64_t offset, uint64_t bytes);

/* A mapped log, up to the end of what is read. */
struct pclog_mapping {
    struct pclog_area area;
    uint64_t end;
    uint32_t seed;
};

enum pclog_entry_kind {
    PCLOG_ENTRY_UNCOMMITTED,
    PCLOG_ENTRY_RECORD,    /* complete, with a correct CRC */
    PCLOG_ENTRY_TOMBSTONE, /* a closed hole */
    PCLOG_ENTRY_DAMAGED,
};

struct pclog_entry {
    enum pclog_entry_kind kind;
    uint64_t total_bytes; /* to the next frame */
    uint64_t record_bytes;
    uint32_t writer, epoch;
};

struct pclog_entry pclog_entry_at(const struct pclog_mapping *mapping, uint64_t offset);

/* Returns the first offset in [offset, until) at which a record or a tombstone begins, or
 * `until`. */
uint64_t pclog_next_frame(const struct pclog_mapping *mapping, uint64_t offset, uint64_t until);

/* ---- scan.c ---- */

/* Maps the first `bytes` of a file; false, with errno set, on failure. */
bool pclog_mapping_open(struct pclog_mapping *mapping, int file, uint64_t bytes, int protection, uint32_t seed);
void pclog_mapping_close(struct pclog_mapping *mapping);

/* Sets the end of a file's frames, no less than `at_least`, and the highest epoch and writer in
 * them. */
int pclog_frames_summarise(int file, uint64_t log_id, uint64_t at_least, struct pclog_contents *contents);

/* Returns where reading continues behind a damaged frame: at the next valid one, or behind the last
 * non-zero word. The length in the damaged frame is not trusted: after a truncation it may extend
 * over records that were appended since. */
uint64_t pclog_after_damage(const struct pclog_mapping *mapping, uint64_t offset);

/* Adds a record or a tombstone to the report. */
void pclog_report_add(struct pclog_report *report, const struct pclog_entry *entry);

/* ---- recover.c ---- */

/* Closes the holes of an open log. */
int pclog_recover_log(pclog *log, struct pclog_report *report);

#endif
