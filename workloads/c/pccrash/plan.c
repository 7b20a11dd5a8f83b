#define _GNU_SOURCE

#include "plan.h"

#include "contract/failure.h"
#include "contract/number.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WRITERS = 64 };

static const char HELP[] =
    "Kills or stops a writer of an append log at a named point, repeatedly. Checks that no committed record is lost,\n"
    "duplicated or torn, that recovery ends, and that the other writers continue.\n\n"
    "  --dir DIR               directory for the logs, which are removed at the end\n"
    "  --point NAME|all        point of the interruption (all, in turn); see --points\n"
    "  --points                list the points and exit\n"
    "  --signal kill|stop|both SIGKILL, or SIGSTOP until the others are done (both, in turn)\n"
    "  --trials N              number of trials (100)\n"
    "  --writers N             number of processes that append, including the interrupted one (4)\n"
    "  --seed S                seed for the moments of interruption (1)\n"
    "  --max-seconds S         start no further trial after this time\n"
    "  --no-handshake          start without waiting for `go`, and exit at the end\n\n"
    "Examples:\n"
    "  pccrash --dir /data --trials 1000 --no-handshake\n"
    "  pccrash --dir /data --point mid_copy --signal kill --trials 10 --no-handshake\n\n"
    "Exit codes: 0 done, 1 failed or a record lost, duplicated or torn, 2 bad arguments, 77 not possible on this "
    "host.\n";

static int point_named(const char *name) {
    for (int at = 0; at < pclog_points; at++) {
        if (strcmp(pclog_point_names[at], name) == 0) {
            return at;
        }
    }
    if (strcmp(name, "all") != 0) {
        fail(BAD_ARGUMENTS, "unknown point '%s' (see `pccrash --points`)", name);
    }
    return pclog_points;
}

static int signal_named(const char *name) {
    if (strcmp(name, "kill") == 0 || strcmp(name, "stop") == 0) {
        return *name == 'k' ? SIGKILL : SIGSTOP;
    }
    if (strcmp(name, "both") != 0) {
        fail(BAD_ARGUMENTS, "--signal must be kill, stop or both, not '%s'", name);
    }
    return 0;
}

static void print_and_exit(const char *word) {
    if (strcmp(word, "--help") == 0) {
        fputs(HELP, stdout);
        exit(DONE);
    }
    if (strcmp(word, "--points") == 0) {
        for (int at = 0; at < pclog_points; at++) {
            puts(pclog_point_names[at]);
        }
        exit(DONE);
    }
}

static void take(struct plan *plan, const char *option, const char *text) {
    if (text == NULL) {
        fail(BAD_ARGUMENTS, "%s is not an option, or lacks its value (see `pccrash --help`)", option);
    } else if (strcmp(option, "--dir") == 0) {
        plan->dir = text;
    } else if (strcmp(option, "--point") == 0) {
        plan->point = point_named(text);
    } else if (strcmp(option, "--signal") == 0) {
        plan->signal = signal_named(text);
    } else if (strcmp(option, "--trials") == 0) {
        plan->trials = number_of(option, text);
    } else if (strcmp(option, "--writers") == 0) {
        plan->writers = (uint32_t)number_of(option, text);
    } else if (strcmp(option, "--seed") == 0) {
        plan->seed = number_of(option, text);
    } else if (strcmp(option, "--max-seconds") == 0) {
        plan->max_seconds = positive_of(option, text, "seconds");
    } else {
        fail(BAD_ARGUMENTS, "unknown option '%s' (see `pccrash --help`)", option);
    }
}

struct plan plan_read(int count, char **words) {
    struct plan plan = {.point = pclog_points, .trials = 100, .writers = 4, .seed = 1, .handshake = true};
    for (int at = 1; at < count; at++) {
        print_and_exit(words[at]);
        if (strcmp(words[at], "--no-handshake") == 0) {
            plan.handshake = false;
        } else {
            take(&plan, words[at], at + 1 < count ? words[at + 1] : NULL);
            at++;
        }
    }
    if (plan.dir == NULL) {
        fail(BAD_ARGUMENTS, "--dir is missing (the directory for the logs)");
    }
    if (plan.trials == 0 || plan.writers < 2 || plan.writers > MAX_WRITERS) {
        fail(BAD_ARGUMENTS, "--trials must be at least 1, and --writers from 2 to %d", MAX_WRITERS);
    }
    return plan;
}

int plan_point(const struct plan *plan, uint64_t trial) {
    return plan->point < pclog_points ? plan->point : (int)(trial % pclog_points);
}

int plan_signal(const struct plan *plan, uint64_t trial) {
    uint64_t turn = plan->point < pclog_points ? trial : trial / pclog_points;
    return plan->signal != 0 ? plan->signal : turn % 2 == 0 ? SIGKILL : SIGSTOP;
}
