/* Group syncs. A sync that is already running may miss records appended since it began, so a writer
 * waits for the next one. The first writer to find the group idle leads it. Numbers may wrap
 * around; only their differences are used. */
#define _GNU_SOURCE

#include "sync.h"

#include "futex.h"

#include <errno.h>
#include <unistd.h>

static int sync_alone(struct writer *writer) {
    const struct method *method = writer->job->plan->method;
    writer->outcome->syncs++;
    if (method->sync != NULL) {
        return method->sync(writer);
    }
    return fdatasync(writer->file) == 0 ? 0 : errno;
}

static bool has_ended(const struct sync_group *group, uint32_t wanted) {
    return (int32_t)(atomic_load(&group->ended) - wanted) >= 0;
}

static void lead(struct writer *writer, struct sync_group *group) {
    uint32_t number = atomic_fetch_add(&group->begun, 1) + 1;
    int error = sync_alone(writer);
    if (error != 0) {
        atomic_store(&group->error, (uint32_t)error);
    }
    atomic_store(&group->ended, number);
}

static int sync_together(struct writer *writer, struct sync_group *group) {
    uint32_t wanted = atomic_load(&group->begun) + 1;
    while (!has_ended(group, wanted)) {
        uint32_t idle = 0;
        if (atomic_compare_exchange_strong(&group->busy, &idle, 1)) {
            if (!has_ended(group, wanted)) {
                lead(writer, group);
            }
            atomic_store(&group->busy, 0);
            futex_wake_all(&group->busy);
        } else {
            futex_wait(&group->busy, 1, 0);
        }
    }
    return (int)atomic_load(&group->error);
}

int sync_writer(struct writer *writer) {
    const struct method *method = writer->job->plan->method;
    int error = method->flush == NULL ? 0 : method->flush(writer);
    if (error != 0) {
        return error;
    }
    struct shared_memory *memory = writer->job->memory;
    return writer->job->plan->fsync == FSYNC_GROUP ? sync_together(writer, &memory->group) : sync_alone(writer);
}
