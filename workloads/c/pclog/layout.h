/* What stands in the two files of a log, for every process that shares them. */
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

/* Two lines apart: processors fetch lines in pairs. */
#define PCLOG_LINE_PAIR 128

/* A place reserved, but not yet known where: between announcing the length and the cursor's answer. */
#define PCLOG_OFFSET_UNKNOWN UINT64_MAX

/* What is decided when the log is made, under a CRC. */
struct pclog_parameters {
    uint32_t mode, growth;
    uint64_t window_bytes, growth_bytes;
    uint32_t growth_percent;
    uint32_t epoch;         /* how often the metadata was made anew: stands in every frame */
    uint64_t log_id;        /* framed: from the header of PATH, seeds every CRC */
    uint64_t inode;         /* of PATH */
    uint64_t pid_namespace; /* where the pids below mean something */
    char boot_id[40];       /* the boot in which they do */
    uint32_t reserved;
    uint32_t crc; /* of all before it */
};

/* One line a writer. Its owner is a process (identity.h), 0 while the slot is free. In framed mode a writer announces
 * the length of its frame, then adds it to the cursor, then says where it stands; both are cleared when it is
 * committed. */
struct pclog_slot {
    alignas(64) _Atomic uint64_t owner;
    _Atomic uint64_t pending_bytes;
    _Atomic uint64_t pending_offset;
    _Atomic uint32_t writer;
};

/* PATH.pclog. Each word that writers change stands on lines of its own. */
struct pclog_meta {
    char magic[8];
    uint32_t version;
    _Atomic uint32_t valid_copy; /* of the parameters holds: who makes them anew writes the others, then this word */
    struct pclog_parameters parameters[2]; /* changed only by a process that is alone with the log (exclusive.c) */
    alignas(PCLOG_LINE_PAIR) _Atomic uint64_t cursor; /* where the next record goes */
    alignas(PCLOG_LINE_PAIR) _Atomic uint64_t
        grown_bytes;                                     /* how far the file has been made ready; its size is no less */
    alignas(PCLOG_LINE_PAIR) _Atomic uint64_t grower;    /* ftruncate growth: whose turn it is */
    alignas(PCLOG_LINE_PAIR) _Atomic uint64_t exclusive; /* who asks to be, or is, alone with the log (exclusive.c) */
    _Atomic uint32_t writers;                            /* how many there have been, for their numbers */
    _Atomic uint32_t recovered_epoch;                    /* framed: what earlier epochs left has been looked through */
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

/* Before every record of a framed log; frames begin at multiples of 8. The first word is stored last and makes the
 * frame valid: 0 is "not committed". */
struct pclog_frame {
    uint64_t commit; /* length of the record in its low half, CRC32C in its high half */
    uint32_t writer;
    uint16_t epoch;
    uint16_t
        check; /* of the length, the writer and the epoch: a scanner that looks for the next frame asks this first */
};

#define PCLOG_FRAME_BYTES sizeof(struct pclog_frame)

/* In the low half of a commit word: a hole that was closed. The rest of it is how many bytes to jump, the word
 * included. */
#define PCLOG_TOMBSTONE ((uint32_t)1 << 31)

#endif
