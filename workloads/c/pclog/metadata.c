/* Creating and opening PATH.pclog, which appears under its name complete or not at all: it is
 * created without a name, filled, then linked. If several processes create it, the first to link
 * wins and the others find its file. A process that dies leaves nothing, and no process waits for
 * one that is stopped. */
#define _GNU_SOURCE

#include "handle.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_TRIES 100

static int fill(int file, const struct pclog_meta *meta) {
    const char *rest = (const char *)meta;
    size_t bytes = sizeof *meta;
    /* Writing allocates a block for every page, so that no later store finds the disk full. */
    while (bytes > 0) {
        ssize_t done = write(file, rest, bytes);
        if (done < 0 && errno != EINTR) {
            return pclog_errno_status();
        }
        if (done > 0) {
            rest += done;
            bytes -= (size_t)done;
        }
    }
    return PCLOG_OK;
}

/* Fails with ENOENT if there is no /proc. */
static int link_nameless(int file, const char *path) {
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    return linkat(AT_FDCWD, link, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
}

/* For file systems without O_TMPFILE. A process that dies in here leaves an unused file. */
static int make_named(const char *path, mode_t permissions, const struct pclog_meta *meta) {
    char name[PATH_MAX];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (snprintf(name, sizeof name, "%s.%d.%lx", path, (int)getpid(), now.tv_nsec) >= (int)sizeof name) {
        errno = ENAMETOOLONG;
        return PCLOG_SYSTEM;
    }
    int file = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, permissions);
    if (file < 0) {
        return pclog_errno_status();
    }
    int status = fill(file, meta);
    if (status == PCLOG_OK && link(name, path) != 0 && errno != EEXIST) {
        status = pclog_errno_status();
    }
    unlink(name);
    close(file);
    return status;
}

static int make(const char *path, mode_t permissions, const struct pclog_meta *meta) {
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash == NULL ? 1 : (int)(slash - path + 1), slash == NULL ? "." : path);
    int file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, permissions);
    if (file < 0) {
        bool cannot = errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT || errno == EINVAL;
        return cannot ? make_named(path, permissions, meta) : pclog_errno_status();
    }
    PCLOG_TEST_POINT(create_empty);
    int status = fill(file, meta);
    PCLOG_TEST_POINT(create_sized);
    if (status == PCLOG_OK && link_nameless(file, path) != 0 && errno != EEXIST) {
        status = errno == ENOENT ? make_named(path, permissions, meta) : pclog_errno_status();
    }
    close(file);
    return status;
}

static int create(const pclog *log, const struct pclog_options *requested) {
    struct pclog_meta *meta = aligned_alloc(PCLOG_LINE_PAIR, sizeof *meta);
    if (meta == NULL) {
        return PCLOG_SYSTEM;
    }
    memset(meta, 0, sizeof *meta);
    memcpy(meta->magic, PCLOG_META_MAGIC, sizeof meta->magic);
    meta->version = PCLOG_VERSION;
    struct pclog_parameters parameters = pclog_parameters_new(requested);
    struct pclog_contents contents;
    int status = pclog_inspect(log, &parameters, PCLOG_CURSOR_NONE, &contents);
    if (status == PCLOG_OK) {
        parameters.epoch = contents.epoch + 1;
        pclog_parameters_seal(&parameters);
        meta->parameters[0] = parameters;
        atomic_init(&meta->cursor, contents.end);
        atomic_init(&meta->grown_bytes, contents.size);
        atomic_init(&meta->writers, contents.writers);
        for (int at = 0; at < PCLOG_WRITERS_MAX; at++) {
            atomic_init(&meta->slots[at].pending_offset, PCLOG_OFFSET_UNKNOWN);
        }
        status = make(log->meta_path, log->options.permissions, meta);
    }
    free(meta);
    return status;
}

/* The version is checked before any other content is used. */
static int check(int file) {
    struct {
        char magic[8];
        uint32_t version;
    } head;
    struct stat status;
    if (fstat(file, &status) != 0) {
        return PCLOG_SYSTEM;
    }
    if (!S_ISREG(status.st_mode) || pread(file, &head, sizeof head, 0) != sizeof head ||
        memcmp(head.magic, PCLOG_META_MAGIC, sizeof head.magic) != 0) {
        return PCLOG_FOREIGN;
    }
    if (head.version != PCLOG_VERSION) {
        return PCLOG_OTHER_VERSION;
    }
    return status.st_size == sizeof(struct pclog_meta) ? PCLOG_OK : PCLOG_FOREIGN;
}

static int map(pclog *log) {
    void *meta = mmap(NULL, sizeof *log->meta, PROT_READ | PROT_WRITE, MAP_SHARED, log->meta_file, 0);
    if (meta == MAP_FAILED) {
        return PCLOG_SYSTEM;
    }
    log->meta = meta;
    return PCLOG_OK;
}

static int adopt(pclog *log, const struct pclog_options *requested) {
    struct pclog_parameters parameters;
    int status = pclog_rebuild_if_stale(log);
    if (status != PCLOG_OK) {
        return status;
    }
    if (!pclog_parameters_read(log->meta, &parameters)) {
        return PCLOG_FOREIGN;
    }
    if (!pclog_parameters_agree(&parameters, requested)) {
        return PCLOG_OTHER_OPTIONS;
    }
    log->options.mode = parameters.mode;
    log->options.growth = parameters.growth;
    log->options.window_bytes = parameters.window_bytes;
    log->options.growth_bytes = parameters.growth_bytes;
    log->options.growth_percent = parameters.growth_percent;
    return PCLOG_OK;
}

int pclog_meta_open(pclog *log, const struct pclog_options *requested) {
    int status = PCLOG_OK;
    for (int tries = 0; status == PCLOG_OK && log->meta_file < 0; tries++) {
        log->meta_file = open(log->meta_path, O_RDWR | O_CLOEXEC);
        if (log->meta_file < 0) {
            status = errno == ENOENT && tries < MAX_TRIES ? create(log, requested) : PCLOG_SYSTEM;
        }
    }
    status = status == PCLOG_OK ? check(log->meta_file) : status;
    status = status == PCLOG_OK ? map(log) : status;
    return status == PCLOG_OK ? adopt(log, requested) : status;
}

void pclog_meta_close(pclog *log) {
    if (log->meta != NULL) {
        munmap(log->meta, sizeof *log->meta);
    }
    if (log->meta_file >= 0) {
        close(log->meta_file);
    }
}
