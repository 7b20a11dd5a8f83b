/* pclog: an append log in an ordinary file, shared by threads and processes, without a lock.
 *
 * A writer reserves space by adding the length of its record to a shared cursor. It then copies the
 * record into a shared mapping of the file. In framed mode it publishes the record by storing its
 * length last. No writer waits for another: a writer that needs more file grows it, and a writer
 * that dies leaves at most a hole, which recovery closes.
 *
 * A log consists of two files: PATH holds the records, PATH.pclog the shared cursor and the table
 * of writers. PATH.pclog may be removed while no writer is alive; PATH is the log.
 *
 *     pclog *log;
 *     pclog_writer *writer;
 *     int status = pclog_open(&log, "service.log", NULL);
 *     if (status == PCLOG_OK) status = pclog_writer_open(log, &writer);
 *     if (status == PCLOG_OK) status = pclog_append(writer, "hello\n", 6, NULL);
 *     if (status != PCLOG_OK) fprintf(stderr, "%s\n", pclog_explain(status));
 *
 * Guarantees once pclog_append has returned PCLOG_OK:
 *   - Every reader on this machine finds the record in the file, complete, in one piece and exactly
 *     once. Killing or stopping this process or any other does not change that.
 *   - A crash of the machine may lose the record, as with write(2). Use pclog_sync, which works
 *     like fdatasync(2), against that.
 * Not guaranteed: in raw mode a writer that dies between reserving and copying leaves zero bytes
 * that cannot be distinguished from data. Framed mode detects such holes and recovery closes them.
 *
 * A handle belongs to the process that opened it. After fork(2) the child opens its own. */
#ifndef PCLOG_H
#define PCLOG_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PCLOG_VERSION 1

/* The result of a call. After any other status than PCLOG_OK nothing visible to readers has
 * changed, except for a hole in the log where the call documents one. errno is left as the failing
 * system call set it. */
enum pclog_status {
    PCLOG_OK = 0,
    PCLOG_SYSTEM,          /* a system call failed, see errno */
    PCLOG_INVALID,         /* an argument or an option is invalid */
    PCLOG_TOO_LARGE,       /* the record exceeds PCLOG_RECORD_MAX, or the log 2^62 bytes */
    PCLOG_NO_SPACE,        /* disk or quota is full; nothing was written; the log stays usable */
    PCLOG_TRUNCATED,       /* another process truncated the file while writers were open: the bytes
                              behind the cut are lost, and so may be records appended since to the
                              page of the cut; reopen the log */
    PCLOG_FOREIGN,         /* PATH.pclog is not the metadata of a log, or is damaged */
    PCLOG_OTHER_VERSION,   /* PATH.pclog was made by another version of this library */
    PCLOG_OTHER_OPTIONS,   /* PATH.pclog was made with a different mode, window or growth */
    PCLOG_STALE,           /* PATH.pclog describes another file than PATH, or PATH has shrunk */
    PCLOG_LIVE_WRITERS,    /* refused, because a live writer may still write beyond the end */
    PCLOG_UNDECIDED,       /* the owner of a hole is, or may be, alive: recover again later */
    PCLOG_TOO_MANY,        /* PCLOG_WRITERS_MAX writers are alive */
    PCLOG_BUSY,            /* another process is stopped while trimming, or growing with ftruncate;
                              nothing was done, try again */
    PCLOG_OTHER_NAMESPACE, /* the writers run in another pid namespace: their state is unknown */
};

/* Returns a sentence that describes a status; never NULL. */
const char *pclog_explain(int status);

enum pclog_mode {
    PCLOG_RAW = 0, /* the file holds the appended bytes and nothing else */
    PCLOG_FRAMED,  /* each record has a length, CRC32C, epoch and writer; dead writers do no harm */
};

enum pclog_growth {
    PCLOG_FALLOCATE = 0, /* fallocate(2): concurrent, and a full disk is detected before writing */
    PCLOG_FTRUNCATE,     /* ftruncate(2), if fallocate(2) is not supported: one process at a time */
};

#define PCLOG_RECORD_MAX ((size_t)1 << 30)
#define PCLOG_WRITERS_MAX 1024

/* Zero in a field selects its default, given in parentheses. The first process to open a log
 * decides. Later ones pass the same values, or leave mode, growth and sizes all zero. */
struct pclog_options {
    enum pclog_mode mode;
    enum pclog_growth growth;
    uint64_t window_bytes;   /* bytes mapped at a time: a power of two, at least a page (64 MiB) */
    uint64_t growth_bytes;   /* step by which the file grows, in whole pages (one window) */
    unsigned growth_percent; /* step as a share of the file's size; the larger step applies (0) */
    uint64_t prefault_bytes; /* populated ahead by a helper thread of this process (0: no helper) */
    mode_t permissions;      /* of created files (0644) */
};

typedef struct pclog pclog;
typedef struct pclog_writer pclog_writer;

/* Opens the log at PATH and creates it if it does not exist; `options` may be NULL. If several
 * processes create it at once, one succeeds and the others use the result, even if some of them
 * die. Metadata is rebuilt if it stems from an earlier boot, or if the file was truncated or
 * replaced while no writer was open. A framed log is then recovered. A raw log continues at the
 * cursor that reached the disk or behind its last non-zero byte, whichever is later. Without
 * metadata it continues at the end of its file. */
int pclog_open(pclog **log, const char *path, const struct pclog_options *options);

/* Unmaps and closes the log. Its writers must be closed first. The file keeps the space that was
 * grown ahead; see pclog_trim. */
int pclog_close(pclog *log);

/* A writer may be used by one thread at a time. Its number is unique over the log's whole life and
 * is stored in every frame. */
int pclog_writer_open(pclog *log, pclog_writer **writer);
int pclog_writer_close(pclog_writer *writer);
uint32_t pclog_writer_id(const pclog_writer *writer);

/* Appends one record. If `offset` is not NULL, it receives the position of the record's first byte
 * (raw) or of its frame. An empty record is PCLOG_INVALID. A record longer than half a window is
 * written with pwrite(2), as is one for which no window could be mapped. After PCLOG_NO_SPACE in
 * framed mode, the writer's next append or a recovery closes the reserved space as a hole. In raw
 * mode the space is released; it remains as zeros only if another writer died on the full disk. */
int pclog_append(pclog_writer *writer, const void *record, size_t bytes, uint64_t *offset);

/* Works like fdatasync(2): everything that any writer appended before the call is on the disk when
 * it returns. */
int pclog_sync(pclog *log);

/* Truncates the file to the end of its last record. Idempotent. Returns PCLOG_LIVE_WRITERS while
 * any process has a writer open that may still write beyond the end. */
int pclog_trim(pclog *log);

/* Returns the end of the log. Every byte before it is reserved, but perhaps not yet committed. */
uint64_t pclog_end(const pclog *log);

/* ---- reading, framed mode ---- */

struct pclog_record {
    uint64_t offset;  /* of its frame */
    const void *data; /* valid during the callback */
    size_t bytes;
    uint32_t writer;
    uint32_t epoch;
};

struct pclog_report {
    uint64_t records, record_bytes;
    uint64_t tombstones, tombstone_bytes; /* holes that were closed, now or earlier */
    uint64_t undecided_bytes;             /* holes of writers that are, or may be, alive */
    uint64_t corrupt_bytes;               /* frames with a wrong CRC: torn by a crash, or damaged */
    uint64_t end;                         /* where reading ended */
};

/* Called for each record; a result other than 0 stops reading. */
typedef int (*pclog_visit)(const struct pclog_record *record, void *context);

/* Reads a framed log from its beginning, in order, without changing it; `report` may be NULL. Needs
 * only PATH. May run beside writers: it then ends at the first record that is not committed and
 * whose length is not yet known. */
int pclog_scan(const char *path, pclog_visit visit, void *context, struct pclog_report *report);

/* Closes the holes of dead writers with tombstones; a writer is identified by pid and start
 * time. May run beside live writers, whose holes it leaves; it then returns PCLOG_UNDECIDED.
 * Idempotent. */
int pclog_recover(const char *path, struct pclog_report *report);

#ifdef __cplusplus
}
#endif
#endif
