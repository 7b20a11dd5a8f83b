#define _GNU_SOURCE

#include "method.h"

#include "contract/failure.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int open_log(const struct job *job, int flags) {
    int file = open(job->path, flags | O_CLOEXEC);
    if (file < 0) {
        fail(FAILED, "cannot open %s: %s", job->path, strerror(errno));
    }
    return file;
}

int write_all(int file, const uint8_t *bytes, size_t count) {
    for (size_t done = 0; done < count;) {
        ssize_t more = write(file, bytes + done, count - done);
        if (more < 0 && errno != EINTR) {
            return errno;
        }
        if (more == 0) {
            return EIO;
        }
        done += more > 0 ? (size_t)more : 0;
    }
    return 0;
}
