/* pcappend: several writers append records to one file by one of many methods, and the file is
 * verified. */
#define _GNU_SOURCE

#include "contract/clock.h"
#include "processes.h"
#include "contract/failure.h"
#include "pagecage_workload.h"
#include "method.h"
#include "report.h"
#include "scratch.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char program_name[] = "pcappend";

static double seconds_since(uint64_t begin_ns) {
    return (double)(now_ns() - begin_ns) / 1e9;
}

/* Does everything that precedes `ready`. */
static void set_up(struct job *job, const struct plan *plan, struct totals *totals) {
    totals->clock_ns = clock_cost_ns();
    *job = (struct job){.plan = plan, .lengths = {plan->bytes_low, plan->bytes_high}, .block_bytes = 1};
    job->memory = shared_memory_new(plan_writers(plan));
    uint64_t begin = now_ns();
    scratch_make(plan->dir, plan->keep, job->path, sizeof job->path);
    if (plan->method->create != NULL) {
        plan->method->create(job);
    }
    processes_start(job);
    totals->setup_seconds = seconds_since(begin);
}

static void work(const struct job *job, struct totals *totals) {
    uint64_t begin = now_ns();
    processes_run(job);
    totals->with_start_seconds = totals->setup_seconds + seconds_since(begin);
    report_add_up(job, totals);
}

static bool read_back(const struct job *job, struct verifier *verifier) {
    const struct method *method = job->plan->method;
    return method->verify != NULL ? method->verify(job, verifier) : verifier_read(verifier, job->path);
}

static struct findings verify(const struct job *job) {
    uint32_t writers = job->memory->writers;
    struct offer *offers = calloc(writers, sizeof *offers);
    for (uint32_t writer = 0; offers != NULL && writer < writers; writer++) {
        offers[writer] =
            (struct offer){job->memory->outcomes[writer].offered, job->memory->outcomes[writer].offered_bytes};
    }
    struct verifier *verifier = offers == NULL ? NULL : verifier_new(&job->lengths, job->block_bytes, writers, offers);
    if (verifier == NULL) {
        fail(FAILED, "not enough memory for verifying %s", job->path);
    }
    if (!read_back(job, verifier)) {
        fail(FAILED, "cannot read %s back: %s", job->path, strerror(errno));
    }
    struct findings found = verifier_conclude(verifier);
    verifier_free(verifier);
    free(offers);
    return found;
}

static uint64_t file_bytes(const struct job *job) {
    struct stat status;
    if (stat(job->path, &status) != 0) {
        fail(FAILED, "cannot inspect %s: %s", job->path, strerror(errno));
    }
    return (uint64_t)status.st_size;
}

static void on_termination(int number) {
    processes_kill();
    scratch_remove();
    signal(number, SIG_DFL);
    raise(number);
}

int main(int count, char **words) {
    static struct totals totals;
    static struct job job;
    struct plan plan = plan_read(count, words);
    signal(SIGXFSZ, SIG_IGN); /* a file size limit then causes EFBIG, which is counted */
    signal(SIGTERM, on_termination);
    signal(SIGINT, on_termination);
    signal(SIGHUP, on_termination);
    set_up(&job, &plan, &totals);
    if (plan.handshake && !pagecage_wait_for_go(0)) {
        processes_kill();
        return DONE;
    }
    work(&job, &totals);
    report_sample(&job, &totals);
    if (plan.method->finish != NULL) {
        plan.method->finish(&job);
    }
    struct findings found = verify(&job);
    totals.file_bytes = file_bytes(&job);
    report_end(&job, &totals, &found);
    if (plan.handshake) {
        pagecage_wait_for_close();
    }
    if (!findings_are_good(&found)) {
        fail(FAILED, "the file does not have each record completely, once and in its writer's order");
    }
    return DONE;
}
