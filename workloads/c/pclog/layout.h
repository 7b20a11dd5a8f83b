/* The layout of a log's two files, shared by all processes that use it. */
#ifndef PCLOG_LAYOUT_H
#define PCLOG_LAYOUT_H

#include "pclog.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define PCLOG_META_MAGIC "pclog-m\n"
#define PCLOG_FILE_MAGIC "pclog-f\n"
#define PCLOG_END_MAX ((uint64_t)1 << 62)

/* Two cache lines, because processors fetch lines in pairs. */
#define PCLOG_LINE_PAIR 128

/* The offset of a reservation whose length is announced but whose cursor value is not yet known. */
#define PCLOG_OFFSET_UNKNOWN UINT64_MAX

/* Decided when the log is created, and protected by a CRC. */
struct pclog_parameters {
    uint32_t mode, growth;
    uint64_t window_bytes, growth_bytes;
    uint32_t growth_percent;
    uint32_t epoch;         /* counts how often metadata was made; stored in every frame */
    uint64_t log_id;        /* framed: from the header of PATH; seeds every CRC */
    uint64_t inode;         /* of PATH */
    uint64_t pid_namespace; /* in which the pids below are valid */
    char boot_id[40];       /* of the boot in which they are valid */
    uint32_t reserved;
    uint32_t crc; /* of all fields above */
};

/* One cache line per writer. `owner` is a process (identity.h), or 0 while the slot is free. In
 * framed mode a writer announces the length of its frame, adds it to the cursor, and then publishes
 * its offset. Both fields are cleared when the frame is committed. */
struct pclog_slot {
    alignas(64) _Atomic uint64_t owner;
    _Atomic uint64_t pending_bytes;
    _Atomic uint64_t pending_offset;
    _Atomic uint32_t writer;
};

/* PATH.pclog. Words that writers change have cache lines of their own. */
struct pclog_meta {
    char magic[8];
    uint32_t version;
    /* The index of the valid parameters; a rebuild writes the other copy, then this word. */
    _Atomic uint32_t valid_copy;
    struct pclog_parameters parameters[2];                 /* changed with exclusive access only */
    alignas(PCLOG_LINE_PAIR) _Atomic uint64_t cursor;      /* offset of the next record */
    alignas(PCLOG_LINE_PAIR) _Atomic uint64_t grown_bytes; /* the file has at least this size */
    alignas(PCLOG_LINE_PAIR) _Atomic uint64_t grower;      /* with ftruncate: whose turn it is */
    alignas(PCLOG_LINE_PAIR) _Atomic uint64_t exclusive;   /* a process (exclusive.c) */
    _Atomic uint32_t writers;                              /* so far, for their numbers */
    _Atomic uint32_t recovered_epoch;                      /* earlier epochs are recovered */
    alignas(PCLOG_LINE_PAIR) struct pclog_slot slots[PCLOG_WRITERS_MAX];
};

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && sizeof(_Atomic uint64_t) == 8, "words shared by processes need no lock");
_Static_assert(sizeof(struct pclog_slot) == 64, "a slot is a cache line");

/* The first bytes of a framed PATH. */
struct pclog_head {
    char magic[8];
    uint32_t version;
    uint32_t crc; /* of the version and the id */
    uint64_t log_id;
    uint64_t reserved;
};

#define PCLOG_HEAD_BYTES sizeof(struct pclog_head)

/* Precedes every record of a framed log; frames begin at multiples of 8. `commit` is stored last
 * and makes the frame valid; 0 means not committed. */
struct pclog_frame {
    uint64_t commit; /* length of the record in the low half, CRC32C in the high half */
    uint32_t writer;
    uint16_t epoch;
    uint16_t check; /* of length, writer and epoch: a cheap test for finding the next frame */
};

#define PCLOG_FRAME_BYTES sizeof(struct pclog_frame)

/* Bit in the low half of a commit word: this is a closed hole. The other bits of that half are the
 * length of the hole in bytes, including the word itself. */
#define PCLOG_TOMBSTONE ((uint32_t)1 << 31)

#endif
