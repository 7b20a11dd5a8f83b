#define _GNU_SOURCE

#include "stage.h"

#include "contract/clock.h"
#include "contract/failure.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define SESSION_RECORDS 50 /* then the writer is closed and opened again, so that a trim may come in between */
#define MOST_RECORDS 20000 /* a writer */
#define LEAST_RECORDS 200

/* Small, so that growth and windows are met often. */
static const struct pclog_options OPTIONS = {.mode = PCLOG_FRAMED, .window_bytes = 65536, .growth_bytes = 16384};

static struct stage *here;

struct stage *stage_new(const struct plan *plan) {
    struct stage *stage = mmap(NULL, sizeof *stage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (stage == MAP_FAILED) {
        fail(FAILED, "no memory for a trial");
    }
    stage->writers = plan->writers;
    return stage;
}

static void interrupt_at(enum pclog_point point) {
    if ((int)point == here->point && atomic_fetch_sub(&here->countdown, 1) == 1) {
        atomic_store(&here->reached, 1);
        raise(here->signal);
    }
}

static void die_at(enum pclog_point point) {
    if (point == pclog_point_after_publish) {
        raise(SIGKILL);
    }
}

static void nap(void) {
    struct timespec moment = {.tv_nsec = 200000};
    nanosleep(&moment, NULL);
}

/* Until somebody who is stopped goes on, PCLOG_BUSY is an answer and no failure. */
static void open_log(pclog **log, struct part *part) {
    int status;
    while ((status = pclog_open(log, here->log, &OPTIONS)) == PCLOG_BUSY) {
        atomic_fetch_add(&part->refused, 1);
        nap();
    }
    if (status != PCLOG_OK) {
        fail(FAILED, "cannot open %s: %s", here->log, pclog_explain(status));
    }
}

static pclog_writer *open_writer(pclog *log, struct part *part) {
    pclog_writer *writer;
    int status;
    while ((status = pclog_writer_open(log, &writer)) == PCLOG_BUSY) {
        atomic_fetch_add(&part->refused, 1);
        nap();
    }
    if (status != PCLOG_OK) {
        fail(FAILED, "cannot open a writer: %s", pclog_explain(status));
    }
    return writer;
}

static void append(pclog_writer *writer, struct part *part, uint32_t who) {
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

static bool enough(const struct part *part) {
    uint32_t committed = atomic_load(&part->committed);
    return atomic_load(&here->finish) ? committed >= LEAST_RECORDS : false;
}

int act_writer(struct stage *stage, uint32_t who, bool victim) {
    struct part *part = &stage->parts[who];
    pclog *log;
    here = stage;
    pclog_at_point = victim ? interrupt_at : NULL;
    open_log(&log, part);
    while (!enough(part)) {
        pclog_writer *writer = open_writer(log, part);
        for (int at = 0; at < SESSION_RECORDS && !enough(part); at++) {
            if (atomic_load(&part->committed) < MOST_RECORDS) {
                append(writer, part, who);
            } else {
                nap();
            }
        }
        pclog_writer_close(writer);
    }
    return pclog_close(log) == PCLOG_OK ? DONE : FAILED;
}

int act_donor(struct stage *stage, uint32_t who) {
    here = stage;
    pclog *log;
    open_log(&log, &stage->parts[who]);
    pclog_writer *writer = open_writer(log, &stage->parts[who]);
    for (int at = 0; at < SESSION_RECORDS; at++) {
        append(writer, &stage->parts[who], who);
    }
    pclog_at_point = die_at;
    append(writer, &stage->parts[who], who);
    return FAILED; /* it should have died */
}

int act_trimmer(struct stage *stage) {
    struct part nobody = {0};
    pclog *log;
    here = stage;
    pclog_at_point = interrupt_at;
    open_log(&log, &nobody);
    while (!atomic_load(&stage->reached)) {
        pclog_trim(log);
    }
    return pclog_close(log) == PCLOG_OK ? DONE : FAILED;
}

int act_recoverer(struct stage *stage) {
    here = stage;
    pclog_at_point = interrupt_at;
    int status = pclog_recover(stage->log, NULL);
    return status == PCLOG_OK || status == PCLOG_UNDECIDED ? DONE : FAILED;
}
