/* pccrash: kills or stops the writers of an append log at named points, and checks the log. */
#define _GNU_SOURCE

#include "contract/clock.h"
#include "contract/failure.h"
#include "pagecage_workload.h"
#include "trial.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

const char program_name[] = "pccrash";

static bool all_good(const struct totals *totals) {
    return totals->lost + totals->doubled + totals->torn + totals->undecided_trials + totals->stalled_trials == 0;
}

static void add_amounts(struct pagecage_message *message, const struct plan *plan, const struct totals *totals,
                        double seconds) {
    pagecage_number(message, "seconds", seconds);
    pagecage_count(message, "bytes", 0);
    pagecage_count(message, "blocks", totals->records);
    pagecage_number(message, "covered_fraction", (double)totals->trials / (double)plan->trials);
    pagecage_null(message, "checksum");
}

static void print_sample(const struct plan *plan, const struct totals *totals, double seconds) {
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    struct pagecage_message sample = pagecage_begin("sample");
    pagecage_count(&sample, "iteration", 0);
    add_amounts(&sample, plan, totals, seconds);
    pagecage_integer(&sample, "major_faults", usage.ru_majflt);
    pagecage_integer(&sample, "minor_faults", usage.ru_minflt);
    pagecage_send(&sample);
}

static void add_response(struct pagecage_message *message, const struct totals *totals) {
    pagecage_open_object(message, "response");
    pagecage_count(message, "trials", totals->trials);
    pagecage_count(message, "records", totals->records);
    pagecage_count(message, "lost_records", totals->lost);
    pagecage_count(message, "doubled_records", totals->doubled);
    pagecage_count(message, "torn_records", totals->torn);
    pagecage_count(message, "tombstones", totals->tombstones);
    pagecage_count(message, "undecided_trials", totals->undecided_trials);
    pagecage_count(message, "stalled_trials", totals->stalled_trials);
    pagecage_count(message, "refused_trials", totals->refused_trials);
    pagecage_number(message, "longest_pause_ms", (double)totals->longest_pause_ns / 1e6);
    pagecage_number(message, "recover_p50_us", (double)histogram_quantile_ns(&totals->recover, 5000) / 1e3);
    pagecage_number(message, "recover_max_us", (double)totals->recover.max_ns / 1e3);
    pagecage_close_object(message);
}

static void print_end(const struct plan *plan, const struct totals *totals, double seconds) {
    struct pagecage_message end = pagecage_begin("end");
    add_amounts(&end, plan, totals, seconds);
    pagecage_count(&end, "distinct_bytes", 0);
    pagecage_bool(&end, "checksum_ok", all_good(totals));
    pagecage_open_array(&end, "threads");
    pagecage_close_array(&end);
    pagecage_open_object(&end, "setup");
    pagecage_close_object(&end);
    add_response(&end, totals);
    pagecage_send(&end);
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
