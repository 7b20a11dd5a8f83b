#define _GNU_SOURCE

#include "check.h"

#include "../identity.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define REQUESTED ((uint64_t)1 << PCLOG_IDENTITY_BITS)
#define EXCLUSIVE ((uint64_t)2 << PCLOG_IDENTITY_BITS)

static pclog *with_one_record(void) {
    pclog *log = open_log(NULL);
    pclog_writer *writer = open_writer(log);
    EQUAL(pclog_append(writer, "x", 1, NULL), PCLOG_OK);
    EQUAL(pclog_writer_close(writer), PCLOG_OK);
    return log;
}

static void refused_while_a_writer_is_open(void) {
    pclog *log = with_one_record();
    pclog_writer *writer = open_writer(log);
    EQUAL(pclog_trim(log), PCLOG_LIVE_WRITERS);
    EQUAL(size_of(LOG), 64 << 20);
    EQUAL(pclog_append(writer, "y", 1, NULL), PCLOG_OK);
    EQUAL(pclog_writer_close(writer), PCLOG_OK);
    EQUAL(pclog_trim(log), PCLOG_OK);
    EQUAL(size_of(LOG), 2);
    EQUAL(pclog_close(log), PCLOG_OK);
}

static int die_with_a_writer(void *context) {
    (void)context;
    open_writer(open_log(NULL));
    return 0;
}

static void a_dead_writer_does_not_prevent_it(void) {
    EQUAL(in_child(die_with_a_writer, NULL), 0);
    pclog *log = with_one_record();
    EQUAL(pclog_trim(log), PCLOG_OK);
    struct pclog_meta *meta = map_meta();
    for (int at = 0; at < PCLOG_WRITERS_MAX; at++) {
        EQUAL(atomic_load(&meta->slots[at].owner), 0);
    }
    EQUAL(size_of(LOG), 1);
    EQUAL(pclog_close(log), PCLOG_OK);
}

static int live_with_a_writer(void *context) {
    pclog_writer *writer = open_writer(open_log(NULL));
    EQUAL(write(*(int *)context, "r", 1), 1);
    pause();
    return pclog_writer_close(writer);
}

static pid_t begin_and_wait(int (*work)(void *)) {
    int ends[2];
    char word;
    CHECK(pipe(ends) == 0);
    pid_t pid = begin_child(work, &ends[1]);
    EQUAL(read(ends[0], &word, 1), 1);
    return pid;
}

static void stop(pid_t pid) {
    int status;
    CHECK(kill(pid, SIGSTOP) == 0 && waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
}

static void a_stopped_writer_counts_as_alive(void) {
    pid_t pid = begin_and_wait(live_with_a_writer);
    pclog *log = with_one_record();
    EQUAL(pclog_trim(log), PCLOG_LIVE_WRITERS);
    stop(pid);
    EQUAL(pclog_trim(log), PCLOG_LIVE_WRITERS);
    CHECK(kill(pid, SIGKILL) == 0);
    EQUAL(end_child(pid), 128 + SIGKILL);
    EQUAL(pclog_trim(log), PCLOG_OK);
    EQUAL(pclog_close(log), PCLOG_OK);
}

static int only_live(void *context) {
    uint64_t self = pclog_self();
    EQUAL(write(*(int *)context, &self, sizeof self), sizeof self);
    for (;;) {
        pause();
    }
}

static pid_t begin_known(uint64_t *who) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t pid = begin_child(only_live, &ends[1]);
    EQUAL(read(ends[0], who, sizeof *who), sizeof *who);
    return pid;
}

/* A request for exclusive access is overruled by a writer and by another trim, even if its owner
 * lives. */
static void requests_for_exclusive_access_are_cancelled(void) {
    uint64_t living, owners[2];
    pid_t pid = begin_known(&living);
    pclog *log = with_one_record();
    struct pclog_meta *meta = map_meta();
    owners[0] = living;
    owners[1] = dead_identity();
    for (int at = 0; at < 2; at++) {
        atomic_store(&meta->exclusive, REQUESTED | owners[at]);
        pclog_writer *writer = open_writer(log);
        EQUAL(atomic_load(&meta->exclusive), 0);
        EQUAL(pclog_writer_close(writer), PCLOG_OK);
        atomic_store(&meta->exclusive, REQUESTED | owners[at]);
        EQUAL(pclog_trim(log), PCLOG_OK);
        EQUAL(size_of(LOG), 1);
    }
    CHECK(kill(pid, SIGKILL) == 0);
    end_child(pid);
    EQUAL(pclog_close(log), PCLOG_OK);
}

static void exclusive_access_of_the_dead_is_taken_over(void) {
    pclog *log = with_one_record();
    struct pclog_meta *meta = map_meta();
    atomic_store(&meta->exclusive, EXCLUSIVE | dead_identity());
    CHECK(truncate(LOG, 1) == 0); /* it died between truncating the file and recording that */
    pclog_writer *writer = open_writer(log);
    EQUAL(atomic_load(&meta->exclusive), 0);
    EQUAL(pclog_append(writer, "y", 1, NULL), PCLOG_OK);
    EQUAL(pclog_writer_close(writer), PCLOG_OK);
    atomic_store(&meta->exclusive, EXCLUSIVE | dead_identity());
    EQUAL(pclog_trim(log), PCLOG_OK);
    EQUAL(size_of(LOG), 2);
    EQUAL(pclog_close(log), PCLOG_OK);
}

static void exclusive_access_of_the_stopped_is_busy(void) {
    uint64_t who;
    pid_t pid = begin_known(&who);
    pclog *log = with_one_record(), *other;
    pclog_writer *writer;
    struct pclog_meta *meta = map_meta();
    stop(pid);
    atomic_store(&meta->exclusive, EXCLUSIVE | who);
    EQUAL(pclog_writer_open(log, &writer), PCLOG_BUSY);
    EQUAL(pclog_trim(log), PCLOG_BUSY);
    EQUAL(pclog_open(&other, LOG, NULL), PCLOG_BUSY);
    CHECK(kill(pid, SIGKILL) == 0);
    end_child(pid);
    EQUAL(pclog_writer_close(open_writer(log)), PCLOG_OK);
    EQUAL(pclog_close(log), PCLOG_OK);
}

static int trim_repeatedly(void *context) {
    pclog *log = open_log(NULL);
    while (!atomic_load((_Atomic int *)context)) {
        int status = pclog_trim(log);
        CHECK(status == PCLOG_OK || status == PCLOG_LIVE_WRITERS || status == PCLOG_BUSY);
    }
    return 0;
}

/* Writers open and close while two processes trim continuously: no record is ever cut off. */
static void trims_and_writers_at_once(void) {
    _Atomic int *over = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct pclog_options options = {.mode = PCLOG_FRAMED, .window_bytes = 65536, .growth_bytes = 4096};
    EQUAL(pclog_close(open_log(&options)), PCLOG_OK);
    pid_t one = begin_child(trim_repeatedly, (void *)over), other = begin_child(trim_repeatedly, (void *)over);
    unsigned char record[3000];
    pclog *log = open_log(&options);
    for (uint32_t at = 0; at < 600; at += 3) {
        pclog_writer *writer = open_writer(log);
        for (uint32_t more = 0; more < 3; more++) {
            EQUAL(pclog_append(writer, record, make_record(record, 0, at + more, sizeof record), NULL), PCLOG_OK);
        }
        EQUAL(pclog_writer_close(writer), PCLOG_OK);
    }
    atomic_store(over, 1);
    EQUAL(end_child(one), 0);
    EQUAL(end_child(other), 0);
    EQUAL(pclog_trim(log), PCLOG_OK);
    check_framed(1, 600, NULL);
    EQUAL(pclog_close(log), PCLOG_OK);
}

const struct test TRIM_TESTS[] = {
    {"refused_while_a_writer_is_open", refused_while_a_writer_is_open},
    {"a_dead_writer_does_not_prevent_it", a_dead_writer_does_not_prevent_it},
    {"a_stopped_writer_counts_as_alive", a_stopped_writer_counts_as_alive},
    {"requests_for_exclusive_access_are_cancelled", requests_for_exclusive_access_are_cancelled},
    {"exclusive_access_of_the_dead_is_taken_over", exclusive_access_of_the_dead_is_taken_over},
    {"exclusive_access_of_the_stopped_is_busy", exclusive_access_of_the_stopped_is_busy},
    {"trims_and_writers_at_once", trims_and_writers_at_once},
    {NULL, NULL},
};
