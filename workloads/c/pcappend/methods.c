#define _GNU_SOURCE

#include "families.h"
#include "method.h"

#include "contract/failure.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

const struct method *const methods[] = {
    &method_pclog,
    &method_write,
    &method_writev,
    &method_fwrite,
    &method_batch,
    &method_handoff,
    &method_reserve_pwrite,
    &method_direct,
    &method_direct_misaligned,
    &method_aio,
    &method_uring,
    &method_mapped_atomic,
    &method_mapped_mutex,
    &method_mapped_semaphore,
    &method_mapped_futex,
    &method_seed_mmlog,
    NULL,
};

const struct method *method_named(const char *name) {
    for (const struct method *const *each = methods; *each != NULL; each++) {
        if (strcmp((*each)->name, name) == 0) {
            return *each;
        }
    }
    return NULL;
}

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

uint64_t job_bytes(const struct job *job) {
    uint64_t all = 0;
    if (job->lengths.low == job->lengths.high) {
        return job->arena->writers * job->plan->ops * job->lengths.low;
    }
    for (uint32_t writer = 0; writer < job->arena->writers; writer++) {
        for (uint64_t sequence = 0; sequence < job->plan->ops; sequence++) {
            all += record_bytes(&job->lengths, writer, sequence);
        }
    }
    return all;
}
