/* Parsing the command line. */
#define _GNU_SOURCE

#include "plan.h"

#include "contract/failure.h"
#include "help.h"
#include "method.h"
#include "contract/number.h"
#include "record.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WRITERS = 1024 };

uint32_t plan_writers(const struct plan *plan) {
    return (uint32_t)(plan->procs * plan->threads);
}

static void take_dir(struct plan *plan, const char *text) {
    plan->dir = text;
}

static void take_method(struct plan *plan, const char *text) {
    plan->method = method_named(text);
    if (plan->method == NULL) {
        fail(BAD_ARGUMENTS, "unknown method '%s' (see `pcappend --help`)", text);
    }
}

static void take_bytes(struct plan *plan, const char *text) {
    char *low = strdup(text);
    char *dots = low == NULL ? NULL : strstr(low, "..");
    if (dots != NULL) {
        *dots = '\0';
    }
    plan->bytes_low = number_of("--bytes", low == NULL ? text : low);
    plan->bytes_high = dots == NULL ? plan->bytes_low : number_of("--bytes", dots + 2);
    free(low);
}

static void take_fsync(struct plan *plan, const char *text) {
    plan->fsync = strcmp(text, "none") == 0 ? FSYNC_NONE : strcmp(text, "group") == 0 ? FSYNC_GROUP : FSYNC_EVERY;
    plan->fsync_every = 1;
    if (plan->fsync == FSYNC_EVERY && strcmp(text, "every") != 0) {
        plan->fsync_every = number_of("--fsync", text);
    }
}

/* Returns true for the second of two words and false for the first; exits for any other. */
static bool second_of(const char *option, const char *text, const char *first, const char *second) {
    if (strcmp(text, first) != 0 && strcmp(text, second) != 0) {
        fail(BAD_ARGUMENTS, "%s must be %s or %s, not '%s'", option, first, second, text);
    }
    return strcmp(text, second) == 0;
}

static void take_framing(struct plan *plan, const char *text) {
    plan->framed = second_of("--framing", text, "raw", "framed");
}

static void take_growth(struct plan *plan, const char *text) {
    plan->ftruncate = second_of("--growth", text, "fallocate", "ftruncate");
}

static void take_rate(struct plan *plan, const char *text) {
    plan->rate = positive_of("--rate", text, "records a second");
}

static void take_max_seconds(struct plan *plan, const char *text) {
    plan->max_seconds = positive_of("--max-seconds", text, "seconds");
}

/* Options whose value is not a whole number. */
static const struct {
    const char *word;
    void (*take)(struct plan *, const char *);
} WORDS[] = {
    {"--dir", take_dir},     {"--method", take_method},           {"--bytes", take_bytes},
    {"--fsync", take_fsync}, {"--framing", take_framing},         {"--growth", take_growth},
    {"--rate", take_rate},   {"--max-seconds", take_max_seconds},
};

/* Options with a whole number, and its minimum. */
static const struct {
    const char *word;
    size_t field;
    uint64_t minimum;
} NUMBERS[] = {
    {"--procs", offsetof(struct plan, procs), 1},
    {"--threads", offsetof(struct plan, threads), 1},
    {"--ops", offsetof(struct plan, ops), 1},
    {"--depth", offsetof(struct plan, depth), 1},
    {"--batch-bytes", offsetof(struct plan, batch_bytes), 1},
    {"--window", offsetof(struct plan, window_bytes), 0},
    {"--growth-bytes", offsetof(struct plan, growth_bytes), 0},
    {"--growth-percent", offsetof(struct plan, growth_percent), 0},
    {"--prefault-bytes", offsetof(struct plan, prefault_bytes), 0},
};

static void take_number(struct plan *plan, size_t at, const char *text) {
    uint64_t value = number_of(NUMBERS[at].word, text);
    if (value < NUMBERS[at].minimum) {
        fail(BAD_ARGUMENTS, "%s must be at minimum %d", NUMBERS[at].word, (int)NUMBERS[at].minimum);
    }
    memcpy((char *)plan + NUMBERS[at].field, &value, sizeof value);
}

/* Applies an option without a value; returns false for any other word. */
static bool take_flag(struct plan *plan, const char *word) {
    if (strcmp(word, "--no-handshake") == 0) {
        plan->handshake = false;
    } else if (strcmp(word, "--keep") == 0) {
        plan->keep = true;
    } else if (strcmp(word, "--help") == 0) {
        help_print();
        exit(DONE);
    } else {
        return false;
    }
    return true;
}

static void take_option(struct plan *plan, const char *word, const char *value) {
    for (size_t at = 0; at < sizeof WORDS / sizeof *WORDS; at++) {
        if (strcmp(word, WORDS[at].word) == 0) {
            WORDS[at].take(plan, value);
            return;
        }
    }
    for (size_t at = 0; at < sizeof NUMBERS / sizeof *NUMBERS; at++) {
        if (strcmp(word, NUMBERS[at].word) == 0) {
            take_number(plan, at, value);
            return;
        }
    }
    fail(BAD_ARGUMENTS, "unknown option '%s' (see `pcappend --help`)", word);
}

static void check_lengths(const struct plan *plan) {
    if (plan->bytes_low == 0 || plan->bytes_high > RECORD_MAX_BYTES || plan->bytes_low > plan->bytes_high) {
        fail(BAD_ARGUMENTS, "--bytes must be from 1 to 64M, as N or as N..M with N the smaller");
    }
    if (plan->bytes_low < RECORD_LABELLED_BYTES && plan->bytes_low != plan->bytes_high) {
        fail(BAD_ARGUMENTS, "records below %d bytes do not hold their number, so all must have the same length",
             RECORD_LABELLED_BYTES);
    }
    if (plan->bytes_low < RECORD_LABELLED_BYTES && plan_writers(plan) > RECORD_SHORT_WRITERS) {
        fail(BAD_ARGUMENTS, "records below %d bytes can distinguish at most %d writers", RECORD_LABELLED_BYTES,
             RECORD_SHORT_WRITERS);
    }
}

static void check(const struct plan *plan) {
    if (plan->dir == NULL || plan->method == NULL) {
        fail(BAD_ARGUMENTS, "--dir and --method are required (see `pcappend --help`)");
    }
    if (plan->procs > MAX_WRITERS || plan->threads > MAX_WRITERS || plan_writers(plan) > MAX_WRITERS) {
        fail(BAD_ARGUMENTS, "there may be at most %d writers (--procs times --threads)", MAX_WRITERS);
    }
    if (plan->fsync == FSYNC_EVERY && plan->fsync_every == 0) {
        fail(BAD_ARGUMENTS, "--fsync must be at minimum 1 (use none to disable syncs)");
    }
    if (plan->ops >= RECORD_SEQUENCES || plan->depth > 4096 || plan->growth_percent > 1000) {
        fail(BAD_ARGUMENTS, "--ops, --depth or --growth-percent is too large");
    }
    if (plan->batch_bytes > 1 << 30) {
        fail(BAD_ARGUMENTS, "--batch-bytes must be at most 1G");
    }
    check_lengths(plan);
}

struct plan plan_read(int count, char **words) {
    struct plan plan = {.procs = 4, .threads = 1, .ops = 100000, .bytes_low = 128, .bytes_high = 128, .depth = 1};
    plan.batch_bytes = 64 << 10;
    plan.handshake = true;
    for (int at = 1; at < count; at++) {
        if (take_flag(&plan, words[at])) {
            continue;
        }
        if (at + 1 == count) {
            fail(BAD_ARGUMENTS, "'%s' needs a value (see `pcappend --help`)", words[at]);
        }
        take_option(&plan, words[at], words[at + 1]);
        at++;
    }
    check(&plan);
    return plan;
}
