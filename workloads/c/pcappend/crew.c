#define _GNU_SOURCE

#include "crew.h"

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

enum { LOOK_EVERY_NS = 20000000 };

static pid_t *members; /* 0 where one has ended */
static uint64_t member_count;

struct seat {
    struct process *process;
    uint32_t number;
};

static void *sit(void *seat) {
    const struct seat *mine = seat;
    writer_run(mine->process, mine->number);
    return NULL;
}

static void run_threads(struct process *process) {
    const struct plan *plan = process->job->plan;
    pthread_t *threads = calloc(plan->threads, sizeof *threads);
    struct seat *seats = calloc(plan->threads, sizeof *seats);
    for (uint64_t at = 0; threads != NULL && seats != NULL && at < plan->threads; at++) {
        seats[at] = (struct seat){process, (uint32_t)(process->number * plan->threads + at)};
        /* The first sits on the process's own thread: a process of one writer has no other. */
        if (at > 0 && pthread_create(&threads[at], NULL, sit, &seats[at]) != 0) {
            fail(FAILED, "cannot start %u threads", (unsigned)plan->threads);
        }
    }
    if (threads == NULL || seats == NULL) {
        fail(FAILED, "no memory for %u threads", (unsigned)plan->threads);
    }
    sit(&seats[0]);
    for (uint64_t at = 1; at < plan->threads; at++) {
        pthread_join(threads[at], NULL);
    }
    free(threads);
    free(seats);
}

static void explain_bus_error(int signal) {
    static const char SENTENCE[] = "pcappend: a mapped page could not be had: the disk is full, or the file was cut short\n";
    (void)signal;
    ssize_t ignored = write(STDERR_FILENO, SENTENCE, sizeof SENTENCE - 1);
    (void)ignored;
    _exit(FAILED);
}

static _Noreturn void run_process(const struct job *job, uint32_t number, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(FAILED);
    }
    signal(SIGBUS, explain_bus_error);
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

static void kill_all(void) {
    for (uint64_t at = 0; at < member_count; at++) {
        if (members[at] > 0) {
            kill(members[at], SIGKILL);
            waitpid(members[at], NULL, 0);
            members[at] = 0;
        }
    }
}

/* A writer that says why it ends has said so itself; of one that was killed somebody else must. */
static _Noreturn void mourn(pid_t member, int status) {
    kill_all();
    if (WIFEXITED(status)) {
        exit(WEXITSTATUS(status) == DONE ? FAILED : WEXITSTATUS(status));
    }
    fail(FAILED, "the writing process %d was killed by signal %d (%s)", (int)member, WTERMSIG(status),
         strsignal(WTERMSIG(status)));
}

/* Takes note of those that have ended; how many are left. */
static uint64_t reap(bool may_end) {
    uint64_t left = 0;
    for (uint64_t at = 0; at < member_count; at++) {
        int status = 0;
        pid_t ended = members[at] == 0 ? 0 : waitpid(members[at], &status, WNOHANG);
        if (ended > 0) {
            members[at] = 0;
            if (!may_end || !WIFEXITED(status) || WEXITSTATUS(status) != DONE) {
                mourn(ended, status);
            }
        }
        left += members[at] != 0;
    }
    return left;
}

void crew_start(const struct job *job) {
    pid_t parent = getpid();
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL); /* sigtimedwait() takes it */
    members = calloc(job->plan->procs, sizeof *members);
    if (members == NULL) {
        fail(FAILED, "no memory for %u processes", (unsigned)job->plan->procs);
    }
    for (member_count = 0; member_count < job->plan->procs; member_count++) {
        pid_t member = fork();
        if (member == 0) {
            run_process(job, (uint32_t)member_count, parent);
        } else if (member < 0) {
            kill_all();
            fail(FAILED, "cannot start %u processes: %s", (unsigned)job->plan->procs, strerror(errno));
        }
        members[member_count] = member;
    }
    uint32_t parked = 0;
    while ((parked = atomic_load(&job->arena->parked)) < job->arena->writers) {
        reap(false);
        futex_wait(&job->arena->parked, parked, LOOK_EVERY_NS);
    }
}

void crew_work(const struct job *job) {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    arena_release(job->arena, job->plan->max_seconds);
    uint64_t deadline = atomic_load(&job->arena->deadline_ns);
    while (reap(true) > 0) {
        uint64_t now = now_ns();
        bool stopping = deadline != 0 && now >= deadline;
        if (stopping) {
            atomic_store(&job->arena->stop, 1);
        }
        struct timespec wait = timespec_of(deadline == 0 || stopping ? SECOND_NS : deadline - now);
        sigtimedwait(&child, NULL, &wait);
    }
}

void crew_dismiss(void) {
    kill_all();
}
