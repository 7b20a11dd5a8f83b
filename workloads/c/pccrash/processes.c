#define _GNU_SOURCE

#include "shared_state.h"

#include "contract/clock.h"
#include "contract/failure.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#define SESSION_RECORDS 50 /* until a writer is reopened, so that a trim can happen in between */
#define MAX_RECORDS 20000  /* per writer */
#define MIN_RECORDS 200

/* Small sizes, so that the log grows and windows change often. */
static const struct pclog_options OPTIONS = {.mode = PCLOG_FRAMED, .window_bytes = 65536, .growth_bytes = 16384};

static struct shared_state *shared;

struct shared_state *shared_state_new(const struct plan *plan) {
    struct shared_state *state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (state == MAP_FAILED) {
        fail(FAILED, "not enough memory for a trial");
    }
    state->writers = plan->writers;
    return state;
}

static void interrupt_at(enum pclog_point point) {
    if ((int)point == shared->point && atomic_fetch_sub(&shared->countdown, 1) == 1) {
        atomic_store(&shared->reached, 1);
        raise(shared->signal);
    }
}

static void die_at(enum pclog_point point) {
    if (point == pclog_point_after_publish) {
        raise(SIGKILL);
    }
}

/* PCLOG_BUSY is not a failure here: it lasts until a stopped process continues. */
static void open_log(pclog **log, struct writer_state *part) {
    int status;
    while ((status = pclog_open(log, shared->log, &OPTIONS)) == PCLOG_BUSY) {
        atomic_fetch_add(&part->refused, 1);
        sleep_us(200);
    }
    if (status != PCLOG_OK) {
        fail(FAILED, "cannot open %s: %s", shared->log, pclog_explain(status));
    }
}

static pclog_writer *open_writer(pclog *log, struct writer_state *part) {
    pclog_writer *writer;
    int status;
    while ((status = pclog_writer_open(log, &writer)) == PCLOG_BUSY) {
        atomic_fetch_add(&part->refused, 1);
        sleep_us(200);
    }
    if (status != PCLOG_OK) {
        fail(FAILED, "cannot open a writer: %s", pclog_explain(status));
    }
    return writer;
}

static void append(pclog_writer *writer, struct writer_state *part, uint32_t who) {
    unsigned char record[RECORD_ROOM];
    uint32_t number = atomic_load(&part->committed);
    uint64_t before = now_ns();
    int status = pclog_append(writer, record, record_make(record, who, number), NULL);
    if (status != PCLOG_OK) {
        fail(FAILED, "cannot append: %s", pclog_explain(status));
    }
    atomic_store(&part->committed, number + 1);
    uint64_t pause = now_ns() - before;
    if (pause > atomic_load(&part->longest_pause_ns)) {
        atomic_store(&part->longest_pause_ns, pause);
    }
}

static bool is_done(const struct writer_state *part) {
    uint32_t committed = atomic_load(&part->committed);
    return atomic_load(&shared->finish) ? committed >= MIN_RECORDS : false;
}

int run_writer(struct shared_state *state, uint32_t who, bool victim) {
    struct writer_state *part = &state->writer_states[who];
    pclog *log;
    shared = state;
    pclog_on_test_point = victim ? interrupt_at : NULL;
    open_log(&log, part);
    while (!is_done(part)) {
        pclog_writer *writer = open_writer(log, part);
        for (int at = 0; at < SESSION_RECORDS && !is_done(part); at++) {
            if (atomic_load(&part->committed) < MAX_RECORDS) {
                append(writer, part, who);
            } else {
                sleep_us(200);
            }
        }
        pclog_writer_close(writer);
    }
    return pclog_close(log) == PCLOG_OK ? DONE : FAILED;
}

int run_donor(struct shared_state *state, uint32_t who) {
    shared = state;
    pclog *log;
    open_log(&log, &state->writer_states[who]);
    pclog_writer *writer = open_writer(log, &state->writer_states[who]);
    for (int at = 0; at < SESSION_RECORDS; at++) {
        append(writer, &state->writer_states[who], who);
    }
    pclog_on_test_point = die_at;
    append(writer, &state->writer_states[who], who);
    return FAILED; /* the signal should have killed it */
}

int run_trimmer(struct shared_state *state) {
    struct writer_state unused = {0};
    pclog *log;
    shared = state;
    pclog_on_test_point = interrupt_at;
    open_log(&log, &unused);
    while (!atomic_load(&state->reached)) {
        pclog_trim(log);
    }
    return pclog_close(log) == PCLOG_OK ? DONE : FAILED;
}

int run_recoverer(struct shared_state *state) {
    shared = state;
    pclog_on_test_point = interrupt_at;
    int status = pclog_recover(state->log, NULL);
    return status == PCLOG_OK || status == PCLOG_UNDECIDED ? DONE : FAILED;
}
