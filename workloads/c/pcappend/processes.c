#define _GNU_SOURCE

#include "processes.h"

#include "contract/clock.h"
#include "contract/failure.h"
#include "futex.h"
#include "writer.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { POLL_NS = 20000000 };

static pid_t *pids; /* 0 for a process that has ended */
static uint64_t pid_count;

struct thread_argument {
    struct process *process;
    uint32_t number;
};

static void *run_writer(void *argument) {
    const struct thread_argument *mine = argument;
    writer_run(mine->process, mine->number);
    return NULL;
}

static void run_threads(struct process *process) {
    const struct plan *plan = process->job->plan;
    pthread_t *threads = calloc(plan->threads, sizeof *threads);
    struct thread_argument *arguments = calloc(plan->threads, sizeof *arguments);
    for (uint64_t at = 0; threads != NULL && arguments != NULL && at < plan->threads; at++) {
        arguments[at] = (struct thread_argument){process, (uint32_t)(process->number * plan->threads + at)};
        /* The first writer uses the main thread, so that a process with one writer has one
         * thread. */
        if (at > 0 && pthread_create(&threads[at], NULL, run_writer, &arguments[at]) != 0) {
            fail(FAILED, "cannot start %u threads", (unsigned)plan->threads);
        }
    }
    if (threads == NULL || arguments == NULL) {
        fail(FAILED, "not enough memory for %u threads", (unsigned)plan->threads);
    }
    run_writer(&arguments[0]);
    for (uint64_t at = 1; at < plan->threads; at++) {
        pthread_join(threads[at], NULL);
    }
    free(threads);
    free(arguments);
}

static void on_bus_error(int signal) {
    static const char SENTENCE[] =
        "pcappend: a mapped page is not available: the disk is full, or the file was truncated\n";
    (void)signal;
    if (fail_may_report()) {
        ssize_t ignored = write(STDERR_FILENO, SENTENCE, sizeof SENTENCE - 1);
        (void)ignored;
    }
    _exit(FAILED);
}

static _Noreturn void run_process(const struct job *job, uint32_t number, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(FAILED);
    }
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    signal(SIGBUS, on_bus_error);
    fail_together(&job->memory->failure_reported);
    struct process process = {.job = job, .number = number};
    const struct method *method = job->plan->method;
    if (method->enter != NULL) {
        method->enter(&process);
    }
    run_threads(&process);
    if (method->leave != NULL) {
        method->leave(&process);
    }
    _exit(DONE);
}

void processes_kill(void) {
    for (uint64_t at = 0; at < pid_count; at++) {
        if (pids[at] > 0) {
            kill(pids[at], SIGKILL);
            waitpid(pids[at], NULL, 0);
            pids[at] = 0;
        }
    }
}

/* A process that exits has reported the reason itself; one that was killed could not. */
static _Noreturn void report_death(pid_t pid, int status) {
    processes_kill();
    if (WIFEXITED(status)) {
        exit(WEXITSTATUS(status) == DONE ? FAILED : WEXITSTATUS(status));
    }
    fail(FAILED, "writer process %d was killed by signal %d (%s)", (int)pid, WTERMSIG(status),
         strsignal(WTERMSIG(status)));
}

/* Reaps the processes that have ended, and returns how many are left. */
static uint64_t reap(bool may_end) {
    uint64_t left = 0;
    for (uint64_t at = 0; at < pid_count; at++) {
        int status = 0;
        pid_t ended = pids[at] == 0 ? 0 : waitpid(pids[at], &status, WNOHANG);
        if (ended > 0) {
            pids[at] = 0;
            if (!may_end || !WIFEXITED(status) || WEXITSTATUS(status) != DONE) {
                report_death(ended, status);
            }
        }
        left += pids[at] != 0;
    }
    return left;
}

void processes_start(const struct job *job) {
    pid_t parent = getpid();
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL); /* received by sigtimedwait(2) */
    pids = calloc(job->plan->procs, sizeof *pids);
    if (pids == NULL) {
        fail(FAILED, "not enough memory for %u processes", (unsigned)job->plan->procs);
    }
    for (pid_count = 0; pid_count < job->plan->procs; pid_count++) {
        pid_t pid = fork();
        if (pid == 0) {
            run_process(job, (uint32_t)pid_count, parent);
        } else if (pid < 0) {
            processes_kill();
            fail(FAILED, "cannot start %u processes: %s", (unsigned)job->plan->procs, strerror(errno));
        }
        pids[pid_count] = pid;
    }
    uint32_t parked = 0;
    while ((parked = atomic_load(&job->memory->waiting)) < job->memory->writers) {
        reap(false);
        futex_wait(&job->memory->waiting, parked, POLL_NS);
    }
}

void processes_run(const struct job *job) {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    gate_open(job->memory, job->plan->max_seconds);
    uint64_t deadline = atomic_load(&job->memory->deadline_ns);
    while (reap(true) > 0) {
        uint64_t now = now_ns();
        bool stopping = deadline != 0 && now >= deadline;
        if (stopping) {
            atomic_store(&job->memory->stop, 1);
        }
        struct timespec wait = timespec_of(deadline == 0 || stopping ? SECOND_NS : deadline - now);
        sigtimedwait(&child, NULL, &wait);
    }
}
