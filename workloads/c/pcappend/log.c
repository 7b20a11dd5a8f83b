/* The append log pclog/, with one handle per process and one writer per thread. */
#define _GNU_SOURCE

#include "method_tables.h"
#include "method.h"

#include "contract/failure.h"
#include "pclog/pclog.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static struct pclog_options options_of(const struct plan *plan) {
    return (struct pclog_options){
        .mode = plan->framed ? PCLOG_FRAMED : PCLOG_RAW,
        .growth = plan->ftruncate ? PCLOG_FTRUNCATE : PCLOG_FALLOCATE,
        .window_bytes = plan->window_bytes,
        .growth_bytes = plan->growth_bytes,
        .growth_percent = (unsigned)plan->growth_percent,
        .prefault_bytes = plan->prefault_bytes,
    };
}

/* Returns the errno under which a status is counted. */
static int errno_of(int status) {
    switch (status) {
    case PCLOG_OK:
        return 0;
    case PCLOG_SYSTEM:
        return errno;
    case PCLOG_NO_SPACE:
        return ENOSPC;
    case PCLOG_TOO_LARGE:
        return EFBIG;
    case PCLOG_TRUNCATED:
        return ESTALE;
    default:
        return EINVAL;
    }
}

static _Noreturn void refuse(const struct job *job, int status) {
    const char *more = status == PCLOG_SYSTEM ? strerror(errno) : pclog_explain(status);
    fail(status == PCLOG_INVALID ? BAD_ARGUMENTS : FAILED, "cannot use %s as a log: %s", job->path, more);
}

static pclog *open_handle(const struct job *job) {
    struct pclog_options options = options_of(job->plan);
    pclog *log = NULL;
    int status = pclog_open(&log, job->path, &options);
    if (status != PCLOG_OK) {
        refuse(job, status);
    }
    return log;
}

/* Creates the log, so that invalid options are refused before any writer starts. */
static void create_log(struct job *job) {
    pclog_close(open_handle(job));
}

static void enter_log(struct process *process) {
    process->own = open_handle(process->job);
}

static void open_writer(struct writer *writer) {
    pclog_writer *own = NULL;
    int status = pclog_writer_open(writer->process->own, &own);
    if (status != PCLOG_OK) {
        refuse(writer->job, status);
    }
    writer->own = own;
}

static int append_log(struct writer *writer, const uint8_t *record, size_t bytes) {
    return errno_of(pclog_append(writer->own, record, bytes, NULL));
}

static int sync_log(struct writer *writer) {
    return errno_of(pclog_sync(writer->process->own));
}

static void close_writer(struct writer *writer) {
    pclog_writer_close(writer->own);
}

static void leave_log(struct process *process) {
    pclog_close(process->own);
}

/* Removes the space that was grown ahead. */
static void finish_log(struct job *job) {
    pclog *log = open_handle(job);
    int status = pclog_trim(log);
    if (status != PCLOG_OK) {
        refuse(job, status);
    }
    pclog_close(log);
}

static int see_record(const struct pclog_record *record, void *verifier) {
    verifier_add(verifier, record->data, record->bytes);
    return 0;
}

static bool verify_log(const struct job *job, struct verifier *verifier) {
    if (!job->plan->framed) {
        return verifier_read(verifier, job->path);
    }
    struct pclog_report report;
    int status = pclog_scan(job->path, see_record, verifier, &report);
    if (status != PCLOG_OK) {
        refuse(job, status);
    }
    struct stat file;
    if (stat(job->path, &file) != 0) {
        return false;
    }
    uint64_t behind = (uint64_t)file.st_size - report.end;
    verifier_add_junk(verifier, report.tombstone_bytes + report.undecided_bytes, report.corrupt_bytes + behind);
    return true;
}

const struct method method_pclog = {
    .name = "pclog",
    .summary = "the lock-free append log: space reserved by atomic addition, copied into a moving mapping",
    .create = create_log,
    .enter = enter_log,
    .open = open_writer,
    .append = append_log,
    .sync = sync_log,
    .close = close_writer,
    .leave = leave_log,
    .finish = finish_log,
    .verify = verify_log,
};
