/* The state that one process holds of a log, and the library's internal interfaces. */
#ifndef PCLOG_HANDLE_H
#define PCLOG_HANDLE_H

#include "identity.h"
#include "layout.h"
#include "pclog.h"
#include "test_points.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

static inline uint64_t min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static inline uint64_t pclog_round_up(uint64_t bytes, uint64_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

/* ---- system.c ---- */

uint64_t pclog_page_bytes(void);
/* Returns PCLOG_NO_SPACE or PCLOG_SYSTEM by errno. */
int pclog_errno_status(void);
/* Sleeps for less than a second. */
void pclog_sleep_us(long us);

/* ---- sigbus.c: mapped memory whose pages may be missing ---- */

struct pclog_area {
    unsigned char *base;
    size_t bytes;
    int index;             /* in the table that the SIGBUS handler searches */
    _Atomic bool any_lost; /* the handler replaced a missing page with anonymous memory */
    _Atomic uint64_t *lost_pages;
};

/* Registers a mapped area with the handler; false if its table is full or memory is short. */
bool pclog_area_register(struct pclog_area *area);
void pclog_area_unregister(struct pclog_area *area);
/* Returns whether one of these bytes is on a lost page. */
bool pclog_area_find_lost(const struct pclog_area *area, size_t from, size_t bytes);

/* As pclog_area_find_lost, but costs a single load if no page was lost. The fence keeps the load
 * behind the copy, which the handler interrupts. */
static inline bool pclog_area_lost(const struct pclog_area *area, size_t from, size_t bytes) {
    atomic_signal_fence(memory_order_seq_cst);
    return atomic_load_explicit(&area->any_lost, memory_order_relaxed) && pclog_area_find_lost(area, from, bytes);
}

/* ---- windows.c: mapped parts of the file, shared by the threads of a process ---- */

#define PCLOG_STRIPE_MIN ((uint64_t)16 << 10)

struct pclog_window {
    struct pclog_area area;
    uint64_t start;                   /* offset in the file, a multiple of window_bytes */
    _Atomic uint64_t populated_until; /* file offset; earlier pages are populated, or need not be */
    _Atomic uint64_t stripe_bytes;    /* size of the last populated stripe (stripes.c) */
    _Atomic uint64_t stripe_ns;       /* and its time */
    unsigned holders;                 /* under the log's lock */
    struct pclog_window *next;
};

struct pclog_prefaulter; /* prefault.c: the helper thread */

struct pclog {
    int file;
    int meta_file;
    struct pclog_meta *meta;
    struct pclog_options options; /* with defaults filled in */
    uint32_t epoch;
    uint32_t seed; /* of every CRC, derived from the log's id */
    pclog_identity self;
    char *meta_path;
    _Atomic bool truncated;
    pthread_mutex_t lock; /* protects the windows; taken when a writer changes its window */
    struct pclog_window *windows;
    pthread_mutex_t membership_lock; /* protects the rest; taken when a writer opens or closes */
    unsigned writers;
    struct pclog_prefaulter *prefaulter; /* exists while any writer is open */
};

/* The fields that every append uses come first, on one cache line. `base` maps file offset `from`.
 * The `room` bytes from there are mapped, grown and populated; 0 makes every append take the slow
 * path. */
struct pclog_writer {
    _Atomic uint64_t *cursor;
    unsigned char *base;
    uint64_t from;
    uint64_t room;
    struct pclog_window *window; /* the current one; NULL at first */
    struct pclog_slot *slot;
    pclog *log;
    uint32_t id;
    bool framed;
    bool has_hole; /* framed: the space announced in its slot could not be written */
};

/* Moves the writer to the window that contains `offset`. The previous window is unmapped when no
 * other writer of the process uses it. Returns false if the window cannot be mapped. */
bool pclog_window_enter(pclog_writer *writer, uint64_t offset);
void pclog_window_leave(pclog_writer *writer);
/* Populates the pages of a window between two file offsets; each page is populated once. */
void pclog_populate(struct pclog_window *window, uint64_t from, uint64_t to);

/* ---- metadata.c ---- */

/* Opens PATH.pclog, creates it if it does not exist, and checks it. Sets meta, meta_file and
 * options of the log. Never waits for another process that creates it. */
int pclog_meta_open(pclog *log, const struct pclog_options *requested);
void pclog_meta_close(pclog *log);

/* ---- parameters.c ---- */

/* Returns the parameters of a new log, as far as they do not depend on the content of its file. */
struct pclog_parameters pclog_parameters_new(const struct pclog_options *requested);
bool pclog_parameters_agree(const struct pclog_parameters *parameters, const struct pclog_options *requested);
bool pclog_options_valid(const struct pclog_options *requested);
/* Sets the CRC. */
void pclog_parameters_seal(struct pclog_parameters *parameters);
/* Reads the valid copy; false if its CRC is wrong. */
bool pclog_parameters_read(const struct pclog_meta *meta, struct pclog_parameters *parameters);

/* ---- rebuild.c ---- */

/* Rebuilds metadata that a reboot, a rotation or a truncation has made stale; leaves other metadata
 * unchanged. Returns PCLOG_STALE if live writers still use stale metadata. */
int pclog_rebuild_if_stale(pclog *log);

/* The cursor that a raw log's earlier metadata holds. After a crash of the machine the one on the
 * disk may be too old; it is then not exact. */
struct pclog_cursor {
    uint64_t offset;
    bool exact;
};
/* Without earlier metadata the log ends at the end of its file. */
#define PCLOG_CURSOR_NONE ((struct pclog_cursor){UINT64_MAX, true})

/* The contents of a log's file, from which metadata is made. */
struct pclog_contents {
    uint64_t end;
    uint64_t size;
    uint32_t epoch, writers; /* the highest numbers in frames */
};
/* Determines the contents, and sets inode and log id in the parameters. */
int pclog_inspect(const pclog *log, struct pclog_parameters *parameters, struct pclog_cursor known,
                  struct pclog_contents *contents);

/* ---- exclusive.c ---- */

/* Acquires exclusive access to the log, or returns PCLOG_LIVE_WRITERS or PCLOG_BUSY. Frees the
 * slots of dead writers. */
int pclog_exclusive_begin(pclog *log);
/* Releases it, and sets grown_bytes to the size of the file. */
int pclog_exclusive_end(pclog *log);
/* Waits until no process has exclusive access. Takes over from a process that has died; returns
 * PCLOG_BUSY for one that is stopped. */
int pclog_exclusive_wait(pclog *log);
/* Cancels pending requests, then waits as above. For a writer that has taken its slot. */
int pclog_exclusive_cancel(pclog *log);

/* ---- cursor.c ---- */

/* Takes a reservation back; false if another writer has reserved behind it. */
bool pclog_release(pclog *log, uint64_t offset, uint64_t bytes);

/* ---- grow.c ---- */

/* Grows the file to at least `end` bytes. */
int pclog_grow(pclog *log, uint64_t end);
/* Grows the file for a reservation, and tries to release the reservation if that fails. */
int pclog_grow_or_release(pclog *log, uint64_t offset, uint64_t bytes);

/* ---- copy.c ---- */

/* Copies bytes to reserved and grown space at any offset, across windows or with pwrite(2). */
int pclog_copy(pclog_writer *writer, const void *source, size_t bytes, uint64_t offset);
/* Writes with pwrite(2) what could not be copied because of a lost page; its status has the
 * cause. */
int pclog_write_at(pclog *log, const void *source, size_t bytes, uint64_t offset);

/* Copies to mapped memory. Every mapped record passes through here, so that tests can interrupt
 * it. */
#ifdef PCLOG_TEST_POINTS
void pclog_copy_bytes(unsigned char *target, const void *source, size_t bytes);
#else
static inline void pclog_copy_bytes(unsigned char *target, const void *source, size_t bytes) {
    memcpy(target, source, bytes);
}
#endif

/* ---- stripes.c ---- */

/* Populates pages ahead of `offset`, which is in the writer's window, and sets the writer's room to
 * end behind `offset`. */
void pclog_populate_ahead(pclog_writer *writer, uint64_t offset, size_t bytes);

/* ---- prefault.c ---- */

/* Starts the helper thread if the log's options ask for one; called before the first writer
 * appends. */
void pclog_prefaulter_start(pclog *log);
/* Stops it; called after the last writer has closed. */
void pclog_prefaulter_stop(pclog *log);
void pclog_prefaulter_wake(pclog *log);

#endif
