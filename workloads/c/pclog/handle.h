/* What one process holds of a log, and what the parts of the library ask of each other. */
#ifndef PCLOG_HANDLE_H
#define PCLOG_HANDLE_H

#include "identity.h"
#include "layout.h"
#include "pclog.h"
#include "test_points.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

/* ---- mapped memory whose pages may turn out not to be there (sigbus.c) ---- */

struct pclog_area {
    unsigned char *base;
    size_t bytes;
    int index;             /* in the table that the handler of SIGBUS looks through */
    _Atomic bool any_lost; /* a page could not be had: the handler put memory of no file in its place */
    _Atomic uint64_t *lost_pages;
};

/* Lets the handler know of an area that has just been mapped; false where there is no more room for one. */
bool pclog_area_register(struct pclog_area *area);
void pclog_area_unregister(struct pclog_area *area);
/* Whether one of these bytes is on a page that could not be had. */
bool pclog_area_find_lost(const struct pclog_area *area, size_t from, size_t bytes);

/* The same at the price of one load where all is well. The fence keeps the load behind the copy, which the handler
 * interrupts. */
static inline bool pclog_area_lost(const struct pclog_area *area, size_t from, size_t bytes) {
    atomic_signal_fence(memory_order_seq_cst);
    return atomic_load_explicit(&area->any_lost, memory_order_relaxed) && pclog_area_find_lost(area, from, bytes);
}

/* ---- a process's windows (windows.c), shared by its threads ---- */

#define PCLOG_STRIPE_MIN ((uint64_t)16 << 10)

struct pclog_window {
    struct pclog_area area;
    uint64_t start;                   /* offset in the file, a multiple of window_bytes */
    _Atomic uint64_t populated_until; /* pages before this offset have been populated, or need not be */
    _Atomic uint64_t stripe_bytes;    /* how many were populated last, and when (stripes.c) */
    _Atomic uint64_t stripe_ns;
    unsigned holders; /* under the log's lock */
    struct pclog_window *next;
};

struct pclog_prefaulter; /* prefault.c: the helper thread */

struct pclog {
    int file;
    int meta_file;
    struct pclog_meta *meta;
    struct pclog_options options; /* as they hold: none is zero that has a default */
    uint32_t epoch;
    uint32_t seed; /* of every CRC: that of the log's id */
    pclog_identity self;
    char *path;
    char *meta_path;
    _Atomic bool truncated;
    pthread_mutex_t lock; /* over the windows; taken when a writer leaves one */
    struct pclog_window *windows;
    pthread_mutex_t membership_lock; /* over what follows; taken when a writer comes or goes */
    unsigned writers;
    struct pclog_prefaulter *prefaulter; /* lives as long as any writer */
};

/* On the way of every append: a few words on one line. From `base` on are the bytes of the file from offset `from`, as
 * far as `room` tells mapped, grown and made ready; 0 sends everything the slow way. */
struct pclog_writer {
    _Atomic uint64_t *cursor;
    unsigned char *base;
    uint64_t from;
    uint64_t room;
    struct pclog_window *window; /* the one that it stands on, NULL at first */
    struct pclog_slot *slot;
    pclog *log;
    uint32_t id;
    bool framed;
    bool has_hole; /* framed: what stands in its slot could not be written */
};

/* Puts the writer on the window that holds `offset`, and takes it off the one where it stood, which is unmapped when no
 * other writer of the process is on it. False where it cannot be mapped. */
bool pclog_window_enter(pclog_writer *writer, uint64_t offset);
void pclog_window_leave(pclog_writer *writer);
/* Populates pages of a window from `from` to `to`, both offsets in the file; each is done once. */
void pclog_populate(struct pclog_window *window, uint64_t from, uint64_t to);

/* ---- metadata.c ---- */

/* Opens PATH.pclog, makes it where there is none, and checks it; sets meta, meta_file, options and epoch of the log.
 * Never waits for another process that makes it. */
int pclog_meta_open(pclog *log, const struct pclog_options *requested);
void pclog_meta_close(pclog *log);

/* ---- parameters.c ---- */

/* The parameters of a log that is made now, as far as they do not depend on what its file holds. */
struct pclog_parameters pclog_parameters_new(const struct pclog_options *requested);
/* Whether what is asked for agrees with them. */
bool pclog_parameters_agree(const struct pclog_parameters *parameters, const struct pclog_options *requested);
bool pclog_options_valid(const struct pclog_options *requested);
void pclog_parameters_seal(struct pclog_parameters *parameters);
/* The parameters that hold; false where their CRC does not fit. */
bool pclog_parameters_read(const struct pclog_meta *meta, struct pclog_parameters *parameters);

/* ---- rebuild.c ---- */

/* Makes metadata anew that a boot, a rotation or a cut has overtaken; of others nothing is changed. PCLOG_STALE where
 * writers are alive that go by them. */
int pclog_rebuild_if_stale(pclog *log);
/* What an earlier cursor tells of a raw log. After a crash of the machine the one on the disk may be too old. */
struct pclog_cursor {
    uint64_t offset;
    bool exact;
};
/* Nothing: the log ends where its file does. */
#define PCLOG_CURSOR_NONE ((struct pclog_cursor){UINT64_MAX, true})

/* What metadata must say of a file; the inode and the log's id go into the parameters. */
struct pclog_contents {
    uint64_t end;
    uint64_t size;
    uint32_t epoch, writers; /* the highest that are seen in frames */
};
int pclog_inspect(const pclog *log, struct pclog_parameters *parameters, struct pclog_cursor known,
                  struct pclog_contents *contents);

/* ---- exclusive.c ---- */

/* Becomes alone with the log, or says why not: PCLOG_LIVE_WRITERS, PCLOG_BUSY. Slots of the dead are free afterwards.
 */
int pclog_exclusive_begin(pclog *log);
/* Gives that up; the size of the file is then as far as it has grown. */
int pclog_exclusive_end(pclog *log);
/* Waits until nobody is alone with the log: ends it for a process that has died, and answers PCLOG_BUSY for one that is
 * stopped. */
int pclog_exclusive_wait(pclog *log);
/* Of a writer that has taken its slot: cancels what is only asked for. Then as above. */
int pclog_exclusive_cancel(pclog *log);

/* ---- cursor.c ---- */

/* Takes a reservation back; false where somebody came after it. */
bool pclog_release(pclog *log, uint64_t offset, uint64_t bytes);

/* ---- grow.c ---- */

/* Makes the file reach to `end` at least. */
int pclog_grow(pclog *log, uint64_t end);
/* Grows for a place that was reserved, and tries to give it back where that fails. */
int pclog_grow_or_release(pclog *log, uint64_t offset, uint64_t bytes);

/* ---- copy.c ---- */

/* Copies bytes to a reserved and grown place anywhere in the file, across windows or by pwrite(2). */
int pclog_copy(pclog_writer *writer, const void *source, size_t bytes, uint64_t offset);
/* What becomes of a copy that met a lost page: written by pwrite(2), which says why. */
int pclog_write_at(pclog *log, const void *source, size_t bytes, uint64_t offset);

/* Copies to mapped memory: the one place where records move. */
#ifdef PCLOG_TEST_POINTS
void pclog_copy_bytes(unsigned char *target, const void *source, size_t bytes);
#else
static inline void pclog_copy_bytes(unsigned char *target, const void *source, size_t bytes) {
    memcpy(target, source, bytes);
}
#endif

/* ---- stripes.c ---- */

/* Of a writer whose window holds `offset`: sets its room, which reaches behind `offset` at least, after pages ahead of
 * it were populated. */
void pclog_populate_ahead(pclog_writer *writer, uint64_t offset, size_t bytes);

/* ---- prefault.c ---- */

/* Starts the helper thread of a log that wants one, before its first writer appends; ends it after the last. */
void pclog_prefaulter_start(pclog *log);
void pclog_prefaulter_stop(pclog *log);
/* Wakes it. */
void pclog_prefaulter_wake(pclog *log);

static inline uint64_t min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static inline uint64_t pclog_round_up(uint64_t bytes, uint64_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

uint64_t pclog_page_bytes(void);

#endif
