#define _GNU_SOURCE

#include "frames.h"
#include "handle.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_PERMISSIONS 0644

static pclog *new_log(const char *path, const struct pclog_options *requested) {
    pclog *log = calloc(1, sizeof *log);
    if (log == NULL) {
        return NULL;
    }
    log->file = log->meta_file = -1;
    log->options = *requested;
    log->options.permissions = requested->permissions != 0 ? requested->permissions : DEFAULT_PERMISSIONS;
    pthread_mutex_init(&log->lock, NULL);
    pthread_mutex_init(&log->membership_lock, NULL);
    if (asprintf(&log->meta_path, "%s.pclog", path) < 0) {
        free(log);
        return NULL;
    }
    return log;
}

static void free_log(pclog *log) {
    int error = errno;
    pclog_meta_close(log);
    if (log->file >= 0) {
        close(log->file);
    }
    pthread_mutex_destroy(&log->lock);
    pthread_mutex_destroy(&log->membership_lock);
    free(log->meta_path);
    free(log);
    errno = error;
}

static int open_file(pclog *log, const char *path) {
    struct stat status;
    log->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, log->options.permissions);
    if (log->file < 0 || fstat(log->file, &status) != 0) {
        return pclog_errno_status();
    }
    return S_ISREG(status.st_mode) ? PCLOG_OK : PCLOG_INVALID;
}

/* Completes opening once the metadata is mapped. */
static int begin(pclog *log) {
    struct pclog_parameters parameters;
    if (!pclog_parameters_read(log->meta, &parameters)) {
        return PCLOG_FOREIGN;
    }
    log->epoch = parameters.epoch;
    log->seed = pclog_frames_seed(parameters.log_id);
    if (parameters.mode != PCLOG_FRAMED || atomic_load(&log->meta->recovered_epoch) == parameters.epoch) {
        return PCLOG_OK;
    }
    struct pclog_report report; /* an earlier epoch may have left holes */
    int status = pclog_recover_log(log, &report);
    if (status != PCLOG_OK && status != PCLOG_UNDECIDED) {
        return status;
    }
    atomic_store(&log->meta->recovered_epoch, parameters.epoch);
    return PCLOG_OK;
}

int pclog_open(pclog **log, const char *path, const struct pclog_options *options) {
    static const struct pclog_options DEFAULTS;
    const struct pclog_options *requested = options != NULL ? options : &DEFAULTS;
    if (log == NULL || path == NULL || *path == 0 || !pclog_options_valid(requested)) {
        return PCLOG_INVALID;
    }
    pclog *new = new_log(path, requested);
    if (new == NULL) {
        return PCLOG_SYSTEM;
    }
    new->self = pclog_self();
    int status = new->self != 0 ? open_file(new, path) : PCLOG_SYSTEM;
    status = status == PCLOG_OK ? pclog_meta_open(new, requested) : status;
    status = status == PCLOG_OK ? begin(new) : status;
    if (status != PCLOG_OK) {
        free_log(new);
        return status;
    }
    *log = new;
    return PCLOG_OK;
}

int pclog_close(pclog *log) {
    if (log == NULL) {
        return PCLOG_INVALID;
    }
    pthread_mutex_lock(&log->membership_lock);
    unsigned writers = log->writers;
    pthread_mutex_unlock(&log->membership_lock);
    if (writers > 0) {
        return PCLOG_LIVE_WRITERS;
    }
    free_log(log);
    return PCLOG_OK;
}

static int is_framed(const char *path) {
    uint64_t log_id;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return PCLOG_SYSTEM;
    }
    int status = pclog_head_read(file, &log_id);
    close(file);
    return status;
}

int pclog_recover(const char *path, struct pclog_report *report) {
    struct pclog_report ignored;
    pclog *log;
    int status = path == NULL ? PCLOG_INVALID : is_framed(path);
    status = status == PCLOG_OK ? pclog_open(&log, path, NULL) : status;
    if (status != PCLOG_OK) {
        return status;
    }
    status = pclog_recover_log(log, report != NULL ? report : &ignored);
    pclog_close(log);
    return status;
}
