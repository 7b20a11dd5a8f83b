#define _GNU_SOURCE

#include "plan.h"

#include "contract/failure.h"
#include "contract/number.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WRITERS = 64 };

static const char HELP[] =
    "Kills or stops a writer of an append log at a named point, again and again, and proves that nothing committed is "
    "lost,\n"
    "doubled or torn, that recovery ends, and that the others go on.\n\n"
    "  --dir DIR               where its logs are made, and removed\n"
    "  --point NAME|all        where it is interrupted (all in turn); --points lists them\n"
    "  --signal kill|stop|both SIGKILL, or SIGSTOP until the others are done (both in turn)\n"
    "  --trials N              so many times (100)\n"
    "  --writers N             so many processes append, the one that is interrupted among them (4)\n"
    "  --seed S                of the moments that are chosen (1)\n"
    "  --max-seconds S         begin no further trial after so long\n"
    "  --no-handshake          start at once and leave at once\n\n"
    "Examples:\n"
    "  pccrash --dir /data --trials 1000 --no-handshake\n"
    "  pccrash --dir /data --point mid_copy --signal kill --trials 10 --no-handshake\n\n"
    "Exit codes: 0 done, 1 failed or a record lost, doubled or torn, 2 bad arguments, 77 cannot on this host.\n";

static int point_named(const char *name) {
    for (int at = 0; at < pclog_points; at++) {
        if (strcmp(pclog_point_names[at], name) == 0) {
            return at;
        }
    }
    if (strcmp(name, "all") != 0) {
        fail(BAD_ARGUMENTS, "there is no point '%s' (see `pccrash --points`)", name);
    }
    return pclog_points;
}

static int signal_named(const char *name) {
    if (strcmp(name, "kill") == 0 || strcmp(name, "stop") == 0) {
        return *name == 'k' ? SIGKILL : SIGSTOP;
    }
    if (strcmp(name, "both") != 0) {
        fail(BAD_ARGUMENTS, "--signal is kill, stop or both, not '%s'", name);
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
        fail(BAD_ARGUMENTS, "%s is no option, or lacks its value (see `pccrash --help`)", option);
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
        fail(BAD_ARGUMENTS, "there is no option '%s' (see `pccrash --help`)", option);
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
        fail(BAD_ARGUMENTS, "--dir is missing: the folder for its logs");
    }
    if (plan.trials == 0 || plan.writers < 2 || plan.writers > MOST_WRITERS) {
        fail(BAD_ARGUMENTS, "there must be a trial at least, and from 2 to %d writers", MOST_WRITERS);
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
