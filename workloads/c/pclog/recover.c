/* Closing holes: space that is reserved and not committed. The table of writers names the owner of
 * a hole. The hole of a live writer is left; that of a dead writer is closed with a tombstone. This
 * uses compare-and-swap, so that concurrent or interrupted recoveries do no harm.
 *
 * A hole without an owner in the table belonged to a dead writer as well, unless a live writer has
 * announced a length but not yet published its offset: that writer might own it. The order of reads
 * matters: dead owners, the cursor, then for each hole its commit word, the table, and the word
 * again. A live owner announced the hole before it moved the cursor. Therefore either the table
 * shows it, or the word is no longer 0. */
#define _GNU_SOURCE

#include "frames.h"

#include <sys/mman.h>

#define HOLE_CHECKS 32 /* a running writer publishes its offset within microseconds */

struct recovery {
    pclog *log;
    struct pclog_mapping mapping;
    struct pclog_report *report;
    uint64_t dead[PCLOG_WRITERS_MAX]; /* owners that were dead at the start, 0 for others */
};

/* The state of one hole by the table. */
struct hole {
    enum { CLOSE, LEAVE, RETRY } action;
    bool length_known; /* otherwise the hole extends to the next frame before `end` */
    uint64_t end;
};

static bool dead(const struct recovery *recovery, int at, uint64_t owner) {
    return recovery->dead[at] == owner || pclog_life_of(owner) == PCLOG_DEAD;
}

static void record_dead_owners(struct recovery *recovery) {
    for (int at = 0; at < PCLOG_WRITERS_MAX; at++) {
        uint64_t owner = atomic_load(&recovery->log->meta->slots[at].owner);
        recovery->dead[at] = owner != 0 && pclog_life_of(owner) == PCLOG_DEAD ? owner : 0;
    }
}

static void free_dead_slots(const struct recovery *recovery) {
    for (int at = 0; at < PCLOG_WRITERS_MAX; at++) {
        uint64_t owner = recovery->dead[at];
        if (owner != 0) {
            atomic_compare_exchange_strong(&recovery->log->meta->slots[at].owner, &owner, 0);
        }
    }
}

static struct hole inspect_owned_hole(const struct recovery *recovery, int at, uint64_t owner, uint64_t offset) {
    struct pclog_slot *slot = &recovery->log->meta->slots[at];
    uint64_t bytes = atomic_load(&slot->pending_bytes);
    if (bytes == 0 || atomic_load(&slot->pending_offset) != offset || atomic_load(&slot->owner) != owner) {
        return (struct hole){RETRY, false, offset}; /* the owner has continued meanwhile */
    }
    return (struct hole){dead(recovery, at, owner) ? CLOSE : LEAVE, true, offset + bytes};
}

/* A hole without an owner ends at the next published offset at the latest. */
static struct hole inspect_hole(const struct recovery *recovery, uint64_t offset) {
    struct hole hole = {CLOSE, false, recovery->mapping.end};
    for (int at = 0; at < PCLOG_WRITERS_MAX; at++) {
        struct pclog_slot *slot = &recovery->log->meta->slots[at];
        uint64_t owner = atomic_load(&slot->owner);
        if (owner == 0 || atomic_load(&slot->pending_bytes) == 0) {
            continue;
        }
        uint64_t pending = atomic_load(&slot->pending_offset);
        if (pending == offset) {
            return inspect_owned_hole(recovery, at, owner, offset);
        }
        if (pending == PCLOG_OFFSET_UNKNOWN && !dead(recovery, at, owner)) {
            hole.action = LEAVE;
        } else if (pending > offset && pending < hole.end) {
            hole.end = pending;
        }
    }
    return hole;
}

/* Stores the last tombstone first: the hole counts as closed once its first word is stored. */
static void close_hole(struct recovery *recovery, uint64_t offset, uint64_t end) {
    unsigned char *base = recovery->mapping.area.base;
    uint64_t parts = (end - offset - 1) / PCLOG_TOMBSTONE_MAX;
    for (uint64_t part = parts + 1; part-- > 0;) {
        uint64_t at = offset + part * PCLOG_TOMBSTONE_MAX;
        uint64_t bytes = min_u64(end - at, PCLOG_TOMBSTONE_MAX);
        uint64_t tombstone = pclog_tombstone(recovery->mapping.seed, at, bytes), open = 0;
        _Atomic uint64_t *word = (_Atomic uint64_t *)(void *)(base + at);
        if (part > 0) {
            atomic_store(word, tombstone);
        } else {
            PCLOG_TEST_POINT(in_recover);
            atomic_compare_exchange_strong(word, &open, tombstone);
        }
    }
}

/* Returns where to continue: at the same offset if something has changed there. */
static uint64_t resolve_hole(struct recovery *recovery, uint64_t offset) {
    for (int check = 1;; check++) {
        struct hole hole = inspect_hole(recovery, offset);
        if (pclog_entry_at(&recovery->mapping, offset).kind != PCLOG_ENTRY_UNCOMMITTED) {
            return offset;
        }
        bool leave = hole.action == LEAVE && check >= HOLE_CHECKS;
        if (hole.action != CLOSE && !leave) {
            pclog_sleep_us(50);
            continue;
        }
        uint64_t end = hole.length_known ? hole.end : pclog_next_frame(&recovery->mapping, offset + 8, hole.end);
        if (leave) {
            recovery->report->undecided_bytes += end - offset;
            return end;
        }
        close_hole(recovery, offset, end);
        return offset;
    }
}

static int recover_entries(struct recovery *recovery) {
    struct pclog_report *report = recovery->report;
    uint64_t offset = PCLOG_HEAD_BYTES;
    while (offset < recovery->mapping.end) {
        struct pclog_entry entry = pclog_entry_at(&recovery->mapping, offset);
        if (atomic_load(&recovery->mapping.area.any_lost)) {
            return PCLOG_TRUNCATED;
        }
        if (entry.kind == PCLOG_ENTRY_UNCOMMITTED) {
            offset = resolve_hole(recovery, offset);
        } else if (entry.kind == PCLOG_ENTRY_DAMAGED) {
            uint64_t next = pclog_after_damage(&recovery->mapping, offset);
            report->corrupt_bytes += next - offset;
            offset = next;
        } else {
            pclog_report_add(report, &entry);
            offset += entry.total_bytes;
        }
    }
    report->end = offset;
    return report->undecided_bytes > 0 ? PCLOG_UNDECIDED : PCLOG_OK;
}

int pclog_recover_log(pclog *log, struct pclog_report *report) {
    struct recovery recovery = {.log = log, .report = report};
    *report = (struct pclog_report){0};
    record_dead_owners(&recovery);
    uint64_t end = pclog_end(log);
    int status = pclog_grow(log, end); /* a hole may lie beyond the end of the file */
    if (status != PCLOG_OK) {
        return status;
    }
    if (!pclog_mapping_open(&recovery.mapping, log->file, end, PROT_READ | PROT_WRITE, log->seed)) {
        return PCLOG_SYSTEM;
    }
    status = recover_entries(&recovery);
    pclog_mapping_close(&recovery.mapping);
    if (status == PCLOG_OK || status == PCLOG_UNDECIDED) {
        free_dead_slots(&recovery);
    }
    return status;
}
