#define _GNU_SOURCE

#include "writer.h"

#include "contract/clock.h"
#include "contract/failure.h"
#include "sync.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

/* Without --rate one call in 32 is timed on average: reading the clock twice costs as much as the
 * fastest call. */
enum { CALLS_PER_SAMPLE = 32 };

/* xorshift64, to time calls at irregular distances: regular ones would be in phase with pages,
 * windows and batches. */
static uint64_t draw(struct writer *writer) {
    writer->random ^= writer->random << 13;
    writer->random ^= writer->random >> 7;
    writer->random ^= writer->random << 17;
    return writer->random;
}

static uint64_t distance(struct writer *writer) {
    return 1 + draw(writer) % (2 * CALLS_PER_SAMPLE - 1);
}

static void count_failure(struct outcome *outcome, int error) {
    if (error != 0) {
        outcome->failed++;
        outcome->errors[error > 0 && error < ERRNO_COUNT ? error : 0]++;
    }
}

/* Makes and appends one record. */
static void append(struct writer *writer, uint64_t sequence) {
    size_t bytes = record_bytes(&writer->job->lengths, writer->number, sequence);
    record_stamp(writer->record, bytes, writer->number, sequence);
    int error = writer->job->plan->method->append(writer, writer->record, bytes);
    writer->outcome->offered++;
    writer->outcome->offered_bytes += bytes;
    if (__builtin_expect(error != 0, 0)) {
        count_failure(writer->outcome, error);
    }
}

static void append_timed(struct writer *writer, uint64_t sequence) {
    uint64_t begin = now_ns();
    append(writer, sequence);
    histogram_add(&writer->outcome->call, now_ns() - begin);
}

static void sync_if_due(struct writer *writer, uint64_t sequence) {
    const struct plan *plan = writer->job->plan;
    if (plan->fsync == FSYNC_GROUP || (plan->fsync == FSYNC_EVERY && (sequence + 1) % plan->fsync_every == 0)) {
        uint64_t begin = now_ns();
        count_failure(writer->outcome, sync_writer(writer));
        histogram_add(&writer->outcome->sync, now_ns() - begin);
    }
}

/* Appends without pauses. */
static void run_closed(struct writer *writer) {
    const struct plan *plan = writer->job->plan;
    _Atomic uint32_t *stop = &writer->job->memory->stop;
    bool every = plan->fsync != FSYNC_NONE;
    uint64_t wait = every ? 1 : distance(writer);
    for (uint64_t sequence = 0; sequence < plan->ops; sequence++) {
        if (__builtin_expect(atomic_load_explicit(stop, memory_order_relaxed) != 0, 0)) {
            return;
        }
        if (--wait > 0) {
            append(writer, sequence);
        } else {
            append_timed(writer, sequence);
            wait = every ? 1 : distance(writer);
        }
        if (every) {
            sync_if_due(writer, sequence);
        }
    }
}

/* Sleeps until the given moment; false if that is beyond the deadline. It never spins: that would
 * take the CPU from writers whose record is due. A late wake-up counts as delay, as it would in a
 * program that waits for requests. */
static bool wait_until(const struct shared_memory *memory, uint64_t moment_ns) {
    uint64_t deadline = atomic_load_explicit(&memory->deadline_ns, memory_order_relaxed);
    if (deadline != 0 && moment_ns >= deadline) {
        return false;
    }
    struct timespec moment = timespec_of(moment_ns);
    while (now_ns() < moment_ns && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, NULL) == EINTR) {
    }
    return atomic_load_explicit(&memory->stop, memory_order_relaxed) == 0;
}

/* Appends at the times given by --rate, which start at the same moment for all writers and
 * interleave evenly. A late record does not shift the following ones. */
static void run_open(struct writer *writer) {
    const struct plan *plan = writer->job->plan;
    double interval_ns = SECOND_NS / plan->rate;
    uint64_t writers = writer->job->memory->writers, begin = atomic_load(&writer->job->memory->released_ns);
    for (uint64_t sequence = 0; sequence < plan->ops; sequence++) {
        uint64_t intended = begin + (uint64_t)((double)(sequence * writers + writer->number) * interval_ns);
        if (!wait_until(writer->job->memory, intended)) {
            return;
        }
        append_timed(writer, sequence);
        sync_if_due(writer, sequence);
        uint64_t now = now_ns();
        histogram_add(&writer->outcome->late, now > intended ? now - intended : 0);
    }
}

static void note_usage(struct outcome *outcome, const struct rusage *before) {
    struct rusage now;
    getrusage(RUSAGE_THREAD, &now);
    outcome->minor_faults = (uint64_t)(now.ru_minflt - before->ru_minflt);
    outcome->major_faults = (uint64_t)(now.ru_majflt - before->ru_majflt);
    outcome->voluntary_switches = (uint64_t)(now.ru_nvcsw - before->ru_nvcsw);
    outcome->involuntary_switches = (uint64_t)(now.ru_nivcsw - before->ru_nivcsw);
}

static void run_measured(struct writer *writer) {
    struct rusage before;
    getrusage(RUSAGE_THREAD, &before);
    writer->outcome->started_ns = now_ns();
    if (writer->job->plan->rate > 0.0) {
        run_open(writer);
    } else {
        run_closed(writer);
    }
    const struct method *method = writer->job->plan->method;
    count_failure(writer->outcome, method->flush == NULL ? 0 : method->flush(writer));
    writer->outcome->ended_ns = now_ns();
    note_usage(writer->outcome, &before);
}

static struct writer new_writer(struct process *process, uint32_t number) {
    const struct job *job = process->job;
    struct writer writer = {.process = process, .job = job, .number = number, .file = -1};
    writer.outcome = &job->memory->outcomes[number];
    writer.random = UINT64_C(0x9e3779b97f4a7c15) * (number + 1);
    writer.record = aligned_alloc(4096, (job->lengths.high + 4095) / 4096 * 4096);
    if (writer.record == NULL) {
        fail(FAILED, "not enough memory for a record of %zu bytes", job->lengths.high);
    }
    record_fill(writer.record, job->lengths.high, number);
    return writer;
}

void writer_run(struct process *process, uint32_t number) {
    struct writer writer = new_writer(process, number);
    const struct method *method = process->job->plan->method;
    prctl(PR_SET_TIMERSLACK, 1L); /* otherwise --rate wakes up to 50 us late */
    if (method->open != NULL) {
        method->open(&writer);
    }
    gate_wait(process->job->memory);
    run_measured(&writer);
    if (method->close != NULL) {
        method->close(&writer);
    }
    if (writer.file >= 0 && close(writer.file) != 0) {
        count_failure(writer.outcome, errno);
    }
    free(writer.record);
}
