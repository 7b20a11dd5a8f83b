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
#include <time.h>
#include <unistd.h>

#define PATIENCE_NS ((uint64_t)20 * SECOND_NS) /* before what should happen is taken for what does not */
#define FURTHER_RECORDS 100                    /* of every other writer, after the interruption */

/* Of the trial that runs: the victim first, then the writers; 0 where there is none, or it has been waited for. */
static pid_t pids[65];

static void nap(void) {
    struct timespec moment = {.tv_nsec = 200000};
    nanosleep(&moment, NULL);
}

void trial_kill(void) {
    for (size_t at = 0; at < sizeof pids / sizeof *pids; at++) {
        if (pids[at] > 0) {
            kill(pids[at], SIGKILL);
        }
    }
}

static _Noreturn void give_up(const struct stage *stage, const char *what) {
    trial_kill();
    fail(FAILED, "at %s: %s (%s is left)", pclog_point_names[stage->point], what, stage->log);
}

static bool is_of(int point, enum pclog_point first, enum pclog_point last) {
    return point >= (int)first && point <= (int)last;
}

static bool while_making(int point) {
    return is_of(point, pclog_point_create_empty, pclog_point_create_sized);
}

static bool while_trimming(int point) {
    return is_of(point, pclog_point_trim_announced, pclog_point_trim_truncating);
}

/* Which time of meeting the point counts. */
static uint32_t moment_of(const struct plan *plan, int point, uint64_t trial) {
    uint64_t random = (plan->seed * 0x9e3779b97f4a7c15u + trial + 1) * 0xbf58476d1ce4e5b9u;
    random ^= random >> 29;
    bool often = is_of(point, pclog_point_after_announce, pclog_point_after_publish) ||
                 is_of(point, pclog_point_mid_copy, pclog_point_after_commit);
    bool once = while_making(point) || point == pclog_point_in_recover;
    return 1 + (uint32_t)(once ? 0 : random % (often ? 300 : 5));
}

enum role { WRITER, TRIMMER, RECOVERER, DONOR };

static int act(struct stage *stage, enum role role, uint32_t who, bool victim) {
    switch (role) {
    case TRIMMER:
        return act_trimmer(stage);
    case RECOVERER:
        return act_recoverer(stage);
    case DONOR:
        return act_donor(stage, who);
    default:
        return act_writer(stage, who, victim);
    }
}

static pid_t begin(struct stage *stage, enum role role, uint32_t who, bool victim) {
    pid_t pid = fork();
    if (pid < 0) {
        fail(CANNOT_HERE, "cannot start a process: %s", strerror(errno));
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(act(stage, role, who, victim));
    }
    return pid;
}

static void begin_others(struct stage *stage, uint32_t from) {
    for (uint32_t who = from; who < stage->writers; who++) {
        pids[1 + who] = begin(stage, WRITER, who, false);
    }
}

/* Who is interrupted: a writer, or a process that trims or recovers. Some points are met only before the others are
 * there. */
static void begin_all(struct stage *stage) {
    int point = stage->point;
    if (while_trimming(point)) {
        pids[0] = begin(stage, TRIMMER, 0, true);
    } else if (point == pclog_point_in_recover) {
        int status;
        pid_t donor = begin(stage, DONOR, 0, false);
        waitpid(donor, &status, 0);
        begin_others(stage, 1);
        pids[0] = begin(stage, RECOVERER, 0, true);
    } else {
        pids[0] = begin(stage, WRITER, 0, true);
        if (!while_making(point)) {
            begin_others(stage, 1);
        }
    }
}

static void wait_until_reached(const struct stage *stage) {
    int status;
    uint64_t begin_ns = now_ns();
    while (waitpid(pids[0], &status, WUNTRACED | WNOHANG) != pids[0]) {
        if (now_ns() - begin_ns > PATIENCE_NS) {
            give_up(stage, "the point was not reached");
        }
        nap();
    }
    bool as_meant = stage->signal == SIGSTOP ? WIFSTOPPED(status) : WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (!as_meant) {
        give_up(stage, "the process ended otherwise than by the signal");
    }
    pids[0] = stage->signal == SIGSTOP ? pids[0] : 0;
}

static uint32_t first_of_others(const struct stage *stage) {
    return while_trimming(stage->point) ? 0 : 1;
}

/* Whether every other writer appends further, or is told that it cannot while another is stopped. */
static bool others_go_on(const struct stage *stage) {
    uint32_t before[64];
    uint64_t begin_ns = now_ns();
    for (uint32_t who = 0; who < stage->writers; who++) {
        before[who] = atomic_load(&stage->parts[who].committed);
    }
    for (uint32_t who = first_of_others(stage); who < stage->writers;) {
        const struct part *part = &stage->parts[who];
        if (atomic_load(&part->committed) >= before[who] + FURTHER_RECORDS || atomic_load(&part->committed) >= 20000 ||
            atomic_load(&part->refused) > 0) {
            who++;
        } else if (now_ns() - begin_ns > PATIENCE_NS) {
            return false;
        } else {
            nap();
        }
    }
    return true;
}

static int recover(const struct stage *stage, struct totals *totals, struct pclog_report *report) {
    uint64_t begin_ns = now_ns();
    int status = pclog_recover(stage->log, report);
    histogram_add(&totals->recover, now_ns() - begin_ns);
    bool stopped_alone = status == PCLOG_BUSY && stage->signal == SIGSTOP;
    if (status != PCLOG_OK && status != PCLOG_UNDECIDED && !stopped_alone) {
        give_up(stage, pclog_explain(status));
    }
    return status;
}

static void expect_done(const struct stage *stage, int at) {
    int status;
    if (pids[at] == 0) {
        return;
    }
    uint64_t begin_ns = now_ns();
    while (waitpid(pids[at], &status, WNOHANG) != pids[at]) {
        if (now_ns() - begin_ns > PATIENCE_NS) {
            give_up(stage, "a process did not finish");
        }
        nap();
    }
    pids[at] = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != DONE) {
        give_up(stage, "a process failed that was not interrupted, or not for good");
    }
}

/* The others finish while one is dead or stopped, unless they were told to wait for it; then it goes on, and finishes
 * as well. */
static void finish(struct stage *stage, bool refused) {
    atomic_store(&stage->finish, 1);
    if (refused && pids[0] > 0) {
        kill(pids[0], SIGCONT);
    }
    for (uint32_t who = first_of_others(stage); who < stage->writers; who++) {
        expect_done(stage, 1 + (int)who);
    }
    if (pids[0] > 0) {
        kill(pids[0], SIGCONT);
    }
    expect_done(stage, 0);
}

static void count(const struct stage *stage, struct totals *totals) {
    struct pclog_report report;
    bool refused = false;
    if (recover(stage, totals, &report) != PCLOG_OK) {
        totals->undecided_trials++;
    }
    struct reading reading = stage_read(stage);
    totals->trials++;
    totals->lost += reading.lost;
    totals->doubled += reading.doubled;
    totals->torn += reading.torn;
    totals->tombstones += reading.report.tombstones;
    totals->records += reading.report.records;
    for (uint32_t who = 0; who < stage->writers; who++) {
        uint64_t pause = atomic_load(&stage->parts[who].longest_pause_ns);
        bool other = who >= first_of_others(stage);
        totals->longest_pause_ns = other && pause > totals->longest_pause_ns ? pause : totals->longest_pause_ns;
        refused |= atomic_load(&stage->parts[who].refused) > 0;
    }
    totals->refused_trials += refused;
}

static void set(struct stage *stage, const struct plan *plan, uint64_t trial) {
    stage->point = plan_point(plan, trial);
    stage->signal = plan_signal(plan, trial);
    atomic_store(&stage->countdown, moment_of(plan, stage->point, trial));
    atomic_store(&stage->reached, 0);
    atomic_store(&stage->finish, 0);
    memset(stage->parts, 0, sizeof stage->parts);
}

static void remove_log(const struct stage *stage) {
    char meta[PATH_ROOM + 8];
    snprintf(meta, sizeof meta, "%s.pclog", stage->log);
    unlink(stage->log);
    unlink(meta);
}

void trial_run(const struct plan *plan, struct stage *stage, uint64_t trial, struct totals *totals) {
    struct pclog_report report;
    set(stage, plan, trial);
    begin_all(stage);
    wait_until_reached(stage);
    if (while_making(stage->point) || while_trimming(stage->point)) {
        begin_others(stage, first_of_others(stage));
    }
    totals->stalled_trials += !others_go_on(stage);
    int beside = recover(stage, totals, &report);
    finish(stage, beside == PCLOG_BUSY);
    count(stage, totals);
    remove_log(stage);
}
