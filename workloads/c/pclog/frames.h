/* What makes a file a framed log: its head, and the frames after it. */
#ifndef PCLOG_FRAMES_H
#define PCLOG_FRAMES_H

#include "handle.h"

/* ---- head.c ---- */

/* PCLOG_FOREIGN where the file does not begin with a head. */
int pclog_head_read(int file, uint64_t *log_id);

/* Writes the head of a framed log where there is none yet, and sets log_id, which follows from the file itself: makers
 * at the same time write the same bytes. A file that has a head is framed whatever was asked for; one that has other
 * bytes cannot become it. */
int pclog_head_ensure(int file, struct pclog_parameters *parameters);

/* ---- frames.c ---- */

/* With what every CRC of a log begins; that of a frame goes on with its offset. So bytes of a frame that were copied to
 * another place, in another record or another log, are no frame there. */
uint32_t pclog_frames_seed(uint64_t log_id);

/* What stands in the frame of a record, its commit word included. */
struct pclog_frame pclog_frame_of(uint32_t seed, uint64_t offset, uint32_t writer, uint32_t epoch, const void *record,
                                  size_t bytes);
/* How much of the file a record takes. */
static inline uint64_t pclog_frame_total(uint64_t record_bytes) {
    return pclog_round_up(PCLOG_FRAME_BYTES + record_bytes, 8);
}

/* The commit word of a hole that is closed; `bytes` is a multiple of 8 of at most PCLOG_TOMBSTONE_MAX. */
#define PCLOG_TOMBSTONE_MAX (((uint64_t)1 << 31) - 8)
uint64_t pclog_tombstone(uint32_t seed, uint64_t offset, uint64_t bytes);

/* A mapped log, as far as it is read. */
struct pclog_mapping {
    struct pclog_area area;
    uint64_t end;
    uint32_t seed;
};

enum pclog_entry_kind {
    PCLOG_ENTRY_UNCOMMITTED, /* not committed */
    PCLOG_ENTRY_RECORD,      /* a record that is whole */
    PCLOG_ENTRY_TOMBSTONE,   /* a hole that was closed */
    PCLOG_ENTRY_DAMAGED,
};

struct pclog_entry {
    enum pclog_entry_kind kind;
    uint64_t total_bytes; /* to the next frame */
    uint64_t record_bytes;
    uint32_t writer, epoch;
};

struct pclog_entry pclog_entry_at(const struct pclog_mapping *mapping, uint64_t offset);

/* The first place from `offset` on and before `until` where a frame or a closed hole begins; `until` where there is
 * none. */
uint64_t pclog_next_frame(const struct pclog_mapping *mapping, uint64_t offset, uint64_t until);

/* ---- scan.c ---- */

/* Maps the first `bytes` of a file; false where that cannot be, with errno. */
bool pclog_mapping_open(struct pclog_mapping *mapping, int file, uint64_t bytes, int protection, uint32_t seed);
void pclog_mapping_close(struct pclog_mapping *mapping);

/* Where the frames of a file end at the earliest, with `end` no less than `at_least`, and the highest epoch and writer
 * in them. */
int pclog_frames_summarise(int file, uint64_t log_id, uint64_t at_least, struct pclog_contents *contents);

/* Where reading goes on behind a broken frame: at the next whole one, or behind all that is not zero. Its own length is
 * not believed: a record that was cut may reach beyond those that were appended since. */
uint64_t pclog_after_damage(const struct pclog_mapping *mapping, uint64_t offset);

/* Counts what was entry. */
void pclog_report_add(struct pclog_report *report, const struct pclog_entry *entry);

/* ---- recover.c ---- */

/* Closes the holes of a log that is open. */
int pclog_recover_log(pclog *log, struct pclog_report *report);

#endif
