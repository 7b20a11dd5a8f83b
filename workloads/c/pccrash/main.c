/* pccrash: kills or stops the writers of an append log at named points, and checks the log. */
#define _GNU_SOURCE

#include "contract/clock.h"
#include "contract/failure.h"
#include "pagecage_workload.h"
#include "trial.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

const char program_name[] = "pccrash";

static bool all_good(const struct totals *totals) {
    return totals->lost + totals->doubled + totals->torn + totals->undecided_trials + totals->stalled_trials == 0;
}

static void print_amounts(const struct plan *plan, const struct totals *totals, double seconds) {
    printf("\"seconds\":%.9f,\"bytes\":0,\"blocks\":%" PRIu64 ",\"covered_fraction\":%.9f,", seconds, totals->records,
           (double)totals->trials / (double)plan->trials);
    printf("\"checksum\":null,");
}

static void print_sample(const struct plan *plan, const struct totals *totals, double seconds) {
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    printf("{\"type\":\"sample\",\"iteration\":0,");
    print_amounts(plan, totals, seconds);
    printf("\"major_faults\":%ld,\"minor_faults\":%ld}\n", usage.ru_majflt, usage.ru_minflt);
    fflush(stdout);
}

static void print_response(const struct totals *totals) {
    printf("\"response\":{\"trials\":%" PRIu64 ",\"records\":%" PRIu64 ",\"lost_records\":%" PRIu64
           ",\"doubled_records\":%" PRIu64 ",\"torn_records\":%" PRIu64 ",\"tombstones\":%" PRIu64 ",",
           totals->trials, totals->records, totals->lost, totals->doubled, totals->torn, totals->tombstones);
    printf("\"undecided_trials\":%" PRIu64 ",\"stalled_trials\":%" PRIu64 ",\"refused_trials\":%" PRIu64 ",",
           totals->undecided_trials, totals->stalled_trials, totals->refused_trials);
    printf("\"longest_pause_ms\":%.3f,", (double)totals->longest_pause_ns / 1e6);
    printf("\"recover_p50_us\":%.3f,\"recover_max_us\":%.3f}",
           (double)histogram_quantile_ns(&totals->recover, 5000) / 1e3, (double)totals->recover.max_ns / 1e3);
}

static void print_end(const struct plan *plan, const struct totals *totals, double seconds) {
    printf("{\"type\":\"end\",");
    print_amounts(plan, totals, seconds);
    printf("\"distinct_bytes\":0,\"checksum_ok\":%s,\"threads\":[],\"setup\":{},", all_good(totals) ? "true" : "false");
    print_response(totals);
    printf("}\n");
    fflush(stdout);
}

static double run(const struct plan *plan, struct shared_state *state, struct totals *totals) {
    uint64_t begin = now_ns();
    double seconds = 0;
    for (uint64_t trial = 0; trial < plan->trials; trial++) {
        if (plan->max_seconds > 0 && seconds > plan->max_seconds) {
            break;
        }
        trial_run(plan, state, trial, totals);
        seconds = (double)(now_ns() - begin) / 1e9;
    }
    return seconds;
}

static void on_termination(int number) {
    trial_kill();
    signal(number, SIG_DFL);
    raise(number);
}

int main(int count, char **words) {
    static struct totals totals;
    struct plan plan = plan_read(count, words);
    struct shared_state *state = shared_state_new(&plan);
    if (snprintf(state->log, sizeof state->log, "%s/pccrash-%d.log", plan.dir, (int)getpid()) >= PATH_ROOM - 32) {
        fail(BAD_ARGUMENTS, "the path %s is too long", plan.dir);
    }
    if (access(plan.dir, W_OK) != 0) {
        fail(FAILED, "cannot write to %s: %s", plan.dir, strerror(errno));
    }
    signal(SIGTERM, on_termination);
    signal(SIGINT, on_termination);
    if (plan.handshake && !pagecage_wait_for_go(0)) {
        return DONE;
    }
    double seconds = run(&plan, state, &totals);
    print_sample(&plan, &totals, seconds);
    print_end(&plan, &totals, seconds);
    if (plan.handshake) {
        pagecage_wait_for_close();
    }
    if (!all_good(&totals)) {
        fail(FAILED, "a committed record was lost, duplicated or torn, a hole was not closed, or a writer stalled");
    }
    return DONE;
}
