#define _GNU_SOURCE

#include "trial.h"

#include "contract/clock.h"
#include "contract/failure.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT_NS ((uint64_t)20 * SECOND_NS) /* for everything that a trial waits for */
#define FURTHER_RECORDS 100                   /* of each other writer after the interruption */

/* The processes of the current trial: the victim, then the writers; 0 if not started or already
 * reaped. */
static pid_t pids[65];

void trial_kill(void) {
    for (size_t at = 0; at < sizeof pids / sizeof *pids; at++) {
        if (pids[at] > 0) {
            kill(pids[at], SIGKILL);
        }
    }
}

static _Noreturn void fail_trial(const struct shared_state *state, const char *what) {
    trial_kill();
    fail(FAILED, "at %s: %s (%s is kept)", pclog_point_names[state->point], what, state->log);
}

static bool is_between(int point, enum pclog_point first, enum pclog_point last) {
    return point >= (int)first && point <= (int)last;
}

static bool is_creation_point(int point) {
    return is_between(point, pclog_point_create_empty, pclog_point_create_sized);
}

static bool is_trim_point(int point) {
    return is_between(point, pclog_point_trim_announced, pclog_point_trim_truncating);
}

/* Returns which arrival at the point is interrupted, counted from 1. */
static uint32_t countdown_for(const struct plan *plan, int point, uint64_t trial) {
    uint64_t random = (plan->seed * 0x9e3779b97f4a7c15u + trial + 1) * 0xbf58476d1ce4e5b9u;
    random ^= random >> 29;
    bool often = is_between(point, pclog_point_after_announce, pclog_point_after_publish) ||
                 is_between(point, pclog_point_mid_copy, pclog_point_after_commit);
    bool once = is_creation_point(point) || point == pclog_point_in_recover;
    return 1 + (uint32_t)(once ? 0 : random % (often ? 300 : 5));
}

enum role { WRITER, TRIMMER, RECOVERER, DONOR };

static int run_role(struct shared_state *state, enum role role, uint32_t who, bool victim) {
    switch (role) {
    case TRIMMER:
        return run_trimmer(state);
    case RECOVERER:
        return run_recoverer(state);
    case DONOR:
        return run_donor(state, who);
    default:
        return run_writer(state, who, victim);
    }
}

static pid_t start(struct shared_state *state, enum role role, uint32_t who, bool victim) {
    pid_t pid = fork();
    if (pid < 0) {
        fail(CANNOT_HERE, "cannot start a process: %s", strerror(errno));
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(run_role(state, role, who, victim));
    }
    return pid;
}

static void start_others(struct shared_state *state, uint32_t from) {
    for (uint32_t who = from; who < state->writers; who++) {
        pids[1 + who] = start(state, WRITER, who, false);
    }
}

/* Starts the victim (a writer, or a process that trims or recovers) and the other writers. Some
 * points are reached only while there are no other writers. */
static void start_all(struct shared_state *state) {
    int point = state->point;
    if (is_trim_point(point)) {
        pids[0] = start(state, TRIMMER, 0, true);
    } else if (point == pclog_point_in_recover) {
        int status;
        pid_t donor = start(state, DONOR, 0, false);
        waitpid(donor, &status, 0);
        start_others(state, 1);
        pids[0] = start(state, RECOVERER, 0, true);
    } else {
        pids[0] = start(state, WRITER, 0, true);
        if (!is_creation_point(point)) {
            start_others(state, 1);
        }
    }
}

static void wait_until_reached(const struct shared_state *state) {
    int status;
    uint64_t begin_ns = now_ns();
    while (waitpid(pids[0], &status, WUNTRACED | WNOHANG) != pids[0]) {
        if (now_ns() - begin_ns > TIMEOUT_NS) {
            fail_trial(state, "the point was not reached");
        }
        sleep_us(200);
    }
    bool as_meant = state->signal == SIGSTOP ? WIFSTOPPED(status) : WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (!as_meant) {
        fail_trial(state, "the process was not ended or stopped by the signal");
    }
    pids[0] = state->signal == SIGSTOP ? pids[0] : 0;
}

static uint32_t first_other_writer(const struct shared_state *state) {
    return is_trim_point(state->point) ? 0 : 1;
}

/* Returns whether every other writer continues to append, or receives PCLOG_BUSY while the victim
 * is stopped. */
static bool others_progress(const struct shared_state *state) {
    uint32_t before[64];
    uint64_t begin_ns = now_ns();
    for (uint32_t who = 0; who < state->writers; who++) {
        before[who] = atomic_load(&state->writer_states[who].committed);
    }
    for (uint32_t who = first_other_writer(state); who < state->writers;) {
        const struct writer_state *part = &state->writer_states[who];
        if (atomic_load(&part->committed) >= before[who] + FURTHER_RECORDS || atomic_load(&part->committed) >= 20000 ||
            atomic_load(&part->refused) > 0) {
            who++;
        } else if (now_ns() - begin_ns > TIMEOUT_NS) {
            return false;
        } else {
            sleep_us(200);
        }
    }
    return true;
}

static int recover(const struct shared_state *state, struct totals *totals, struct pclog_report *report) {
    uint64_t begin_ns = now_ns();
    int status = pclog_recover(state->log, report);
    histogram_add(&totals->recover, now_ns() - begin_ns);
    bool stopped_alone = status == PCLOG_BUSY && state->signal == SIGSTOP;
    if (status != PCLOG_OK && status != PCLOG_UNDECIDED && !stopped_alone) {
        fail_trial(state, pclog_explain(status));
    }
    return status;
}

static void wait_for_exit(const struct shared_state *state, int at) {
    int status;
    if (pids[at] == 0) {
        return;
    }
    uint64_t begin_ns = now_ns();
    while (waitpid(pids[at], &status, WNOHANG) != pids[at]) {
        if (now_ns() - begin_ns > TIMEOUT_NS) {
            fail_trial(state, "a process did not finish");
        }
        sleep_us(200);
    }
    pids[at] = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != DONE) {
        fail_trial(state, "a process failed that was not killed");
    }
}

/* Lets the others finish while the victim is dead or stopped, unless they received PCLOG_BUSY. A
 * stopped victim then continues and finishes as well. */
static void finish(struct shared_state *state, bool refused) {
    atomic_store(&state->finish, 1);
    if (refused && pids[0] > 0) {
        kill(pids[0], SIGCONT);
    }
    for (uint32_t who = first_other_writer(state); who < state->writers; who++) {
        wait_for_exit(state, 1 + (int)who);
    }
    if (pids[0] > 0) {
        kill(pids[0], SIGCONT);
    }
    wait_for_exit(state, 0);
}

static void count(const struct shared_state *state, struct totals *totals) {
    struct pclog_report report;
    bool refused = false;
    if (recover(state, totals, &report) != PCLOG_OK) {
        totals->undecided_trials++;
    }
    struct reading reading = read_back(state);
    totals->trials++;
    totals->lost += reading.lost;
    totals->doubled += reading.doubled;
    totals->torn += reading.torn;
    totals->tombstones += reading.report.tombstones;
    totals->records += reading.report.records;
    for (uint32_t who = 0; who < state->writers; who++) {
        uint64_t pause = atomic_load(&state->writer_states[who].longest_pause_ns);
        bool other = who >= first_other_writer(state);
        totals->longest_pause_ns = other && pause > totals->longest_pause_ns ? pause : totals->longest_pause_ns;
        refused |= atomic_load(&state->writer_states[who].refused) > 0;
    }
    totals->refused_trials += refused;
}

static void prepare(struct shared_state *state, const struct plan *plan, uint64_t trial) {
    state->point = plan_point(plan, trial);
    state->signal = plan_signal(plan, trial);
    atomic_store(&state->countdown, countdown_for(plan, state->point, trial));
    atomic_store(&state->reached, 0);
    atomic_store(&state->finish, 0);
    memset(state->writer_states, 0, sizeof state->writer_states);
}

static void remove_log(const struct shared_state *state) {
    char meta[PATH_ROOM + 8];
    snprintf(meta, sizeof meta, "%s.pclog", state->log);
    unlink(state->log);
    unlink(meta);
}

void trial_run(const struct plan *plan, struct shared_state *state, uint64_t trial, struct totals *totals) {
    struct pclog_report report;
    prepare(state, plan, trial);
    start_all(state);
    wait_until_reached(state);
    if (is_creation_point(state->point) || is_trim_point(state->point)) {
        start_others(state, first_other_writer(state));
    }
    totals->stalled_trials += !others_progress(state);
    int beside = recover(state, totals, &report);
    finish(state, beside == PCLOG_BUSY);
    count(state, totals);
    remove_log(state);
}
