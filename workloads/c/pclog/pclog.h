/* pclog: an append log in an ordinary file, shared by threads and processes, without a lock.
 *
 * A writer reserves its place by adding to a shared cursor, copies its record into a shared mapping of the file, and in
 * framed mode publishes it by storing its length last. Nobody waits for anybody: whoever needs more file grows it, and
 * whoever dies leaves at most a hole, which recovery closes.
 *
 * Two files belong to a log: PATH holds the records, and PATH.pclog the shared cursor and the table of writers. The
 * second may be removed when no writer is alive; the first is the log.
 *
 *     pclog *log;
 *     pclog_writer *writer;
 *     int status = pclog_open(&log, "service.log", NULL);
 *     if (status == PCLOG_OK) status = pclog_writer_open(log, &writer);
 *     if (status == PCLOG_OK) status = pclog_append(writer, "hello\n", 6, NULL);
 *     if (status != PCLOG_OK) fprintf(stderr, "%s\n", pclog_explain(status));
 *
 * What is promised, when pclog_append returned PCLOG_OK:
 *   - the record is whole in the file, in one piece, exactly once, for every reader of the file on this machine, and
 *     stays so when this process or any other is killed or stopped at any moment;
 *   - a crash of the machine may take it, as with write(2): pclog_sync, as fdatasync(2), is for that.
 * What is not: in raw mode a writer that dies between reserving and copying leaves zero bytes that nothing tells from
 * data. Framed mode knows such holes, and recovery closes them.
 *
 * A handle belongs to the process that opened it: after fork(2) a child opens its own. */
#ifndef PCLOG_H
#define PCLOG_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PCLOG_VERSION 1

/* What went wrong. Every call returns PCLOG_OK or one of the others, and has then changed nothing that a reader sees,
 * but for a hole in the log where it says so. errno is left as the failing system call set it. */
enum pclog_status {
    PCLOG_OK = 0,
    PCLOG_SYSTEM,          /* a system call failed, see errno */
    PCLOG_INVALID,         /* an argument or an option makes no sense */
    PCLOG_TOO_LARGE,       /* the record is longer than PCLOG_RECORD_MAX, or the log would pass 2^62 bytes */
    PCLOG_NO_SPACE,        /* the disk, or the quota, is full; nothing was written, and a later append may succeed */
    PCLOG_TRUNCATED,       /* somebody cut the file under its writers: what lay beyond is lost, and so may be what was
                              appended since within the page of the cut; the log must be opened anew */
    PCLOG_FOREIGN,         /* PATH.pclog is not the metadata of a log, or is damaged */
    PCLOG_OTHER_VERSION,   /* ... or is that of another version of this library */
    PCLOG_OTHER_OPTIONS,   /* ... or was made with another mode, window or growth than those asked for */
    PCLOG_STALE,           /* ... or speaks of another file than PATH, or of one that has since grown shorter */
    PCLOG_LIVE_WRITERS,    /* refused, because a writer that is alive may still write beyond the end */
    PCLOG_UNDECIDED,       /* a hole belongs to a writer that lives, or may: recover again when it is done or dead */
    PCLOG_TOO_MANY,        /* PCLOG_WRITERS_MAX writers are alive */
    PCLOG_BUSY,            /* another process, stopped, is in the midst of trimming, or of growing by ftruncate: nothing
                              was done, try again */
    PCLOG_OTHER_NAMESPACE, /* the log's writers live in another pid namespace, where we cannot tell whether they live */
};

/* A sentence about a status; never NULL. */
const char *pclog_explain(int status);

enum pclog_mode {
    PCLOG_RAW = 0, /* the file holds the appended bytes and nothing else */
    PCLOG_FRAMED,  /* each record carries its length, CRC32C, epoch and writer: readable whoever died */
};

enum pclog_growth {
    PCLOG_FALLOCATE = 0, /* fallocate(2): any writer may do it at any time, and a full disk is found before writing */
    PCLOG_FTRUNCATE,     /* ftruncate(2): for comparison, and for file systems without the other; one grows at a time */
};

#define PCLOG_RECORD_MAX ((size_t)1 << 30)
#define PCLOG_WRITERS_MAX 1024

/* Zero in any field is its default. The first to open a log decides; a later one may leave all zero, or must agree. */
struct pclog_options {
    enum pclog_mode mode;
    enum pclog_growth growth;
    uint64_t window_bytes;   /* mapped at a time: a power of two from one page on (64 MiB) */
    uint64_t growth_bytes;   /* the file grows by this much, whole pages (a window) */
    unsigned growth_percent; /* ... or by this share of its size where that is more: ever larger steps (0) */
    uint64_t prefault_bytes; /* a helper thread of this process makes so much ready ahead of the cursor (0: none) */
    mode_t permissions;      /* of files that are made (0644) */
};

typedef struct pclog pclog;
typedef struct pclog_writer pclog_writer;

/* Opens the log at PATH, and makes it if there is none; `options` may be NULL. Of processes that make it at once one
 * does and the others use it, whichever of them dies meanwhile. Metadata left by an earlier boot of the machine, or of
 * a file that was cut or put elsewhere while no writer was open, is made anew. A framed log is then recovered. A raw
 * one goes on at the cursor that reached the disk or behind its last byte that is not zero, and without metadata at its
 * file's end. */
int pclog_open(pclog **log, const char *path, const struct pclog_options *options);

/* Unmaps and closes; the log's writers must be closed before. The file keeps what was grown ahead: see pclog_trim. */
int pclog_close(pclog *log);

/* A writer is for one thread at a time. Its number, unique in the log's whole life, stands in every frame. */
int pclog_writer_open(pclog *log, pclog_writer **writer);
int pclog_writer_close(pclog_writer *writer);
uint32_t pclog_writer_id(const pclog_writer *writer);

/* Appends one record; `offset`, where not NULL, gets where its first byte (raw) or its frame stands in the file. An
 * empty record is PCLOG_INVALID. A record longer than half a window goes by pwrite(2), as does one for which no window
 * could be mapped. When it fails with PCLOG_NO_SPACE in framed mode, its place is closed as a hole by the writer's next
 * append or by whoever recovers; in raw mode it is given back, and stays as zeros only where another writer died on the
 * full disk. */
int pclog_append(pclog_writer *writer, const void *record, size_t bytes, uint64_t *offset);

/* As fdatasync(2) of the file: what was appended before, by whomever, is on the disk when it returns. */
int pclog_sync(pclog *log);

/* Cuts what was grown ahead off the file, so that it ends with the last record. Doing it twice is doing it once.
 * PCLOG_LIVE_WRITERS while a writer is open anywhere that may still write beyond. */
int pclog_trim(pclog *log);

/* Where the log ends: every byte before it is reserved, though not yet committed perhaps. */
uint64_t pclog_end(const pclog *log);

/* ---- reading, framed mode ---- */

struct pclog_record {
    uint64_t offset;  /* of its frame */
    const void *data; /* as long as the callback runs */
    size_t bytes;
    uint32_t writer;
    uint32_t epoch;
};

struct pclog_report {
    uint64_t records, record_bytes;
    uint64_t tombstones, tombstone_bytes; /* holes that were closed, now or before */
    uint64_t undecided_bytes;             /* holes of writers that are, or may be, alive */
    uint64_t corrupt_bytes;               /* frames whose CRC does not fit: a torn page after a crash, or damage */
    uint64_t end;                         /* where reading ended */
};

/* Stops reading when it returns other than 0. */
typedef int (*pclog_visit)(const struct pclog_record *record, void *context);

/* Reads a framed log from its beginning, in order, changing nothing; `report` may be NULL. It needs PATH alone and may
 * run beside writers: it then ends at the first record that is not committed and whose length is not yet known. */
int pclog_scan(const char *path, pclog_visit visit, void *context, struct pclog_report *report);

/* Closes the holes of writers that are dead (known by pid and start time) with tombstones; beside living writers too,
 * whose holes it leaves (PCLOG_UNDECIDED says that there were any). Doing it twice is doing it once. */
int pclog_recover(const char *path, struct pclog_report *report);

#ifdef __cplusplus
}
#endif
#endif
