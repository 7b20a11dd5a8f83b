/* A hole is a place that was reserved and is not committed. Whose it is stands in the table of writers: a living one's
 * is left alone, a dead one's is closed with a tombstone, by compare-and-swap, so that two recoveries at once, or one
 * that was interrupted, do no harm.
 *
 * A hole that nobody in the table owns is a dead one's too, if no living writer stands between announcing a length and
 * saying where: such a writer might own it. What is read, in this order: who is dead, the cursor, then for each hole
 * its commit word, the table, and the word again. A living owner of the hole has announced it before it moved the
 * cursor, so the table shows it, or else the word is no longer 0. */
#define _GNU_SOURCE

#include "frames.h"

#include <sys/mman.h>
#include <time.h>

#define LOOKS_AT_A_HOLE 32 /* a writer that runs says within microseconds where it stands */

struct recovery {
    pclog *log;
    struct pclog_text text;
    struct pclog_report *report;
    uint64_t dead[PCLOG_WRITERS_MAX]; /* owners that were dead when it began, 0 for others */
};

/* What the table says of one hole. */
struct verdict {
    enum { CLOSE, LEAVE, LOOK_AGAIN } what;
    bool whole; /* its owner told how long it is; otherwise it reaches to the next frame before `end` */
    uint64_t end;
};

static bool dead(const struct recovery *recovery, int at, uint64_t owner) {
    return recovery->dead[at] == owner || pclog_life_of(owner) == PCLOG_DEAD;
}

static void note_the_dead(struct recovery *recovery) {
    for (int at = 0; at < PCLOG_WRITERS_MAX; at++) {
        uint64_t owner = atomic_load(&recovery->log->meta->slots[at].owner);
        recovery->dead[at] = owner != 0 && pclog_life_of(owner) == PCLOG_DEAD ? owner : 0;
    }
}

static void free_their_slots(const struct recovery *recovery) {
    for (int at = 0; at < PCLOG_WRITERS_MAX; at++) {
        uint64_t owner = recovery->dead[at];
        if (owner != 0) {
            atomic_compare_exchange_strong(&recovery->log->meta->slots[at].owner, &owner, 0);
        }
    }
}

static struct verdict owned(const struct recovery *recovery, int at, uint64_t owner, uint64_t offset) {
    struct pclog_slot *slot = &recovery->log->meta->slots[at];
    uint64_t bytes = atomic_load(&slot->pending_bytes);
    if (bytes == 0 || atomic_load(&slot->pending_offset) != offset || atomic_load(&slot->owner) != owner) {
        return (struct verdict){LOOK_AGAIN, false, offset}; /* it has gone on meanwhile */
    }
    return (struct verdict){dead(recovery, at, owner) ? CLOSE : LEAVE, true, offset + bytes};
}

/* Nobody's hole ends at the next known place at the latest. */
static struct verdict judge(const struct recovery *recovery, uint64_t offset) {
    struct verdict verdict = {CLOSE, false, recovery->text.end};
    for (int at = 0; at < PCLOG_WRITERS_MAX; at++) {
        struct pclog_slot *slot = &recovery->log->meta->slots[at];
        uint64_t owner = atomic_load(&slot->owner);
        if (owner == 0 || atomic_load(&slot->pending_bytes) == 0) {
            continue;
        }
        uint64_t place = atomic_load(&slot->pending_offset);
        if (place == offset) {
            return owned(recovery, at, owner, offset);
        }
        if (place == PCLOG_NOWHERE && !dead(recovery, at, owner)) {
            verdict.what = LEAVE;
        } else if (place > offset && place < verdict.end) {
            verdict.end = place;
        }
    }
    return verdict;
}

/* The last part first: the hole is closed at the moment when its first word is stored. */
static void close_hole(struct recovery *recovery, uint64_t offset, uint64_t end) {
    unsigned char *base = recovery->text.area.base;
    uint64_t parts = (end - offset - 1) / PCLOG_JUMP_MAX;
    for (uint64_t part = parts + 1; part-- > 0;) {
        uint64_t at = offset + part * PCLOG_JUMP_MAX;
        uint64_t bytes = end - at < PCLOG_JUMP_MAX ? end - at : PCLOG_JUMP_MAX;
        uint64_t tombstone = pclog_tombstone(recovery->text.seed, at, bytes), open = 0;
        _Atomic uint64_t *word = (_Atomic uint64_t *)(void *)(base + at);
        if (part > 0) {
            atomic_store(word, tombstone);
        } else {
            PCLOG_AT(in_recover);
            atomic_compare_exchange_strong(word, &open, tombstone);
        }
    }
}

static void nap(void) {
    struct timespec moment = {.tv_nsec = 50000};
    nanosleep(&moment, NULL);
}

/* Where to go on: at the hole again when something has changed there. */
static uint64_t settle(struct recovery *recovery, uint64_t offset) {
    for (int look = 1;; look++) {
        struct verdict verdict = judge(recovery, offset);
        if (pclog_frame_at(&recovery->text, offset).kind != PCLOG_IS_OPEN) {
            return offset;
        }
        bool leave = verdict.what == LEAVE && look >= LOOKS_AT_A_HOLE;
        if (verdict.what != CLOSE && !leave) {
            nap();
            continue;
        }
        uint64_t end = verdict.whole ? verdict.end : pclog_next_frame(&recovery->text, offset + 8, verdict.end);
        if (leave) {
            recovery->report->undecided_bytes += end - offset;
            return end;
        }
        close_hole(recovery, offset, end);
        return offset;
    }
}

static int walk(struct recovery *recovery) {
    struct pclog_report *report = recovery->report;
    uint64_t offset = PCLOG_HEAD_BYTES;
    while (offset < recovery->text.end) {
        struct pclog_seen seen = pclog_frame_at(&recovery->text, offset);
        if (atomic_load(&recovery->text.area.any_lost)) {
            return PCLOG_TRUNCATED;
        }
        if (seen.kind == PCLOG_IS_OPEN) {
            offset = settle(recovery, offset);
        } else if (seen.kind == PCLOG_IS_BROKEN) {
            uint64_t next = pclog_after_broken(&recovery->text, offset);
            report->corrupt_bytes += next - offset;
            offset = next;
        } else {
            pclog_report_add(report, &seen);
            offset += seen.total_bytes;
        }
    }
    report->end = offset;
    return report->undecided_bytes > 0 ? PCLOG_UNDECIDED : PCLOG_OK;
}

int pclog_recover_log(pclog *log, struct pclog_report *report) {
    struct recovery recovery = {.log = log, .report = report};
    *report = (struct pclog_report){0};
    note_the_dead(&recovery);
    uint64_t end = pclog_end(log);
    int status = pclog_grow(log, end); /* a dead one's hole may lie where the file does not reach yet */
    if (status != PCLOG_OK) {
        return status;
    }
    if (!pclog_text_open(&recovery.text, log->file, end, PROT_READ | PROT_WRITE, log->seed)) {
        return PCLOG_SYSTEM;
    }
    status = walk(&recovery);
    pclog_text_close(&recovery.text);
    if (status == PCLOG_OK || status == PCLOG_UNDECIDED) {
        free_their_slots(&recovery);
    }
    return status;
}
