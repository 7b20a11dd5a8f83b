#define _GNU_SOURCE

#include "identity.h"

#include "crc32c.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PID_BITS 22 /* enough for the kernel's PID_MAX_LIMIT */
#define START_BITS 32

struct status {
    char state;
    long threads;
    uint64_t start;
};

static ssize_t read_all(const char *path, char *text, size_t room) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return -1;
    }
    ssize_t bytes = read(file, text, room - 1);
    close(file);
    text[bytes > 0 ? bytes : 0] = 0;
    return bytes;
}

/* Reads proc_pid_stat(5). The second field is the program's name in parentheses, and may itself
 * contain parentheses and spaces. */
static bool read_status(pid_t pid, struct status *status) {
    char path[40], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (read_all(path, text, sizeof text) <= 0) {
        return false;
    }
    const char *rest = strrchr(text, ')');
    return rest != NULL &&
           sscanf(rest + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld %*s %" SCNu64,
                  &status->state, &status->threads, &status->start) == 3;
}

void pclog_boot_id(char text[40]) {
    memset(text, 0, 40);
    if (read_all("/proc/sys/kernel/random/boot_id", text, 40) <= 0) {
        text[0] = 0;
    }
    text[strcspn(text, "\n")] = 0;
}

uint64_t pclog_pid_namespace(void) {
    struct stat status;
    return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

static pclog_identity identity_of(pid_t pid, uint64_t start) {
    char boot[40];
    pclog_boot_id(boot);
    uint64_t boot_bits = pclog_crc32c(0, boot, sizeof boot) & 0xff;
    uint64_t start_bits = start & (((uint64_t)1 << START_BITS) - 1);
    return boot_bits << (PID_BITS + START_BITS) | start_bits << PID_BITS | (uint64_t)pid;
}

pclog_identity pclog_self(void) {
    struct status status;
    return read_status(getpid(), &status) ? identity_of(getpid(), status.start) : 0;
}

enum pclog_life pclog_life_of(pclog_identity identity) {
    pid_t pid = (pid_t)(identity & (((uint64_t)1 << PID_BITS) - 1));
    struct status status;
    if (pid == 0) {
        return PCLOG_DEAD;
    }
    if (!read_status(pid, &status)) { /* perhaps hidden by the mount option hidepid of proc(5) */
        return kill(pid, 0) != 0 && errno == ESRCH ? PCLOG_DEAD : PCLOG_RUNNING;
    }
    if (identity_of(pid, status.start) != identity) {
        return PCLOG_DEAD;
    }
    if (status.state == 'X' || (status.state == 'Z' && status.threads <= 1)) {
        return PCLOG_DEAD; /* if a zombie has other threads, only its first thread has ended */
    }
    return status.state == 'T' || status.state == 't' ? PCLOG_STOPPED : PCLOG_RUNNING;
}
