#define _GNU_SOURCE

#include "scratch.h"

#include "contract/failure.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char log_path[4096], metadata_path[4096 + 8];
static pid_t owner; /* a forked child must not remove the file when it exits */

void scratch_remove(void) {
    if (getpid() == owner) {
        unlink(log_path);
        unlink(metadata_path);
    }
}

void scratch_make(const char *dir, bool keep, char *path, size_t room) {
    int printed = snprintf(log_path, sizeof log_path, "%s/pcappend-%d.log", dir, (int)getpid());
    if (printed >= (int)sizeof log_path || (size_t)printed >= room) {
        fail(FAILED, "the path %s is too long", dir);
    }
    snprintf(metadata_path, sizeof metadata_path, "%s.pclog", log_path);
    int file = open(log_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file < 0) {
        fail(FAILED, "cannot create a file in %s: %s", dir, strerror(errno));
    }
    close(file);
    memcpy(path, log_path, (size_t)printed + 1);
    if (!keep) {
        owner = getpid();
        atexit(scratch_remove);
    }
}
