/* pcscan-c: the delays of an event loop that scans files beside other work.
 *
 * One thread runs one epoll loop. epoll does not support regular files, which count as always
 * ready. The loop therefore does what such programs do: it handles pending events, scans one window
 * of the next file, and polls for events again. */
#define _GNU_SOURCE

#include "heartbeat.h"
#include "plan.h"
#include "source.h"

#include "contract/clock.h"
#include "contract/failure.h"
#include "pagecage_workload.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

const char program_name[] = "pcscan-c";

struct run {
    struct plan plan;
    struct source *sources;
    struct heartbeat heartbeat;
    struct rusage before, after;
    double seconds;
};

static void on_bus_error(int signal) {
    static const char SENTENCE[] =
        "pcscan-c: a mapped page could not be read: the file was truncated, or its disk failed\n";
    (void)signal;
    ssize_t ignored = write(STDERR_FILENO, SENTENCE, sizeof SENTENCE - 1);
    (void)ignored;
    _exit(FAILED);
}

static int new_poll(const struct heartbeat *heartbeat) {
    int poll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event wanted = {.events = EPOLLIN};
    if (poll < 0 || (heartbeat->timer >= 0 && epoll_ctl(poll, EPOLL_CTL_ADD, heartbeat->timer, &wanted) != 0)) {
        fail(CANNOT_HERE, "cannot create an epoll instance");
    }
    return poll;
}

static void scan(struct run *run) {
    uint8_t *buffer = malloc(run->plan.buf_bytes);
    int poll = new_poll(&run->heartbeat);
    if (buffer == NULL) {
        fail(FAILED, "not enough memory for a buffer");
    }
    heartbeat_start(&run->heartbeat);
    uint64_t started = now_ns();
    bool left = true;
    for (size_t turn = 0; left; turn = (turn + 1) % run->plan.file_count) {
        struct epoll_event event;
        if (epoll_wait(poll, &event, 1, 0) > 0) {
            heartbeat_poll(&run->heartbeat);
        }
        if (run->sources[turn].done_bytes < run->sources[turn].len) {
            source_scan_window(&run->sources[turn], &run->plan, buffer);
        }
        run->seconds = (double)(now_ns() - started) / 1e9;
        left = run->plan.max_seconds <= 0.0 || run->seconds < run->plan.max_seconds;
        bool some = false;
        for (size_t at = 0; at < run->plan.file_count; at++) {
            some |= run->sources[at].done_bytes < run->sources[at].len;
        }
        left &= some;
    }
    heartbeat_poll(&run->heartbeat);
    close(poll);
    free(buffer);
}

struct totals {
    uint64_t bytes, size_bytes, pieces, sum, expected;
};

static struct totals add_up(const struct run *run) {
    struct totals all = {0};
    for (size_t at = 0; at < run->plan.file_count; at++) {
        all.bytes += run->sources[at].done_bytes;
        all.size_bytes += run->sources[at].len;
        all.pieces += run->sources[at].pieces;
        all.sum += run->sources[at].sum;
        all.expected += run->sources[at].expected;
    }
    return all;
}

static void add_amounts(struct pagecage_message *message, const struct run *run, const struct totals *all) {
    pagecage_number(message, "seconds", run->seconds);
    pagecage_count(message, "bytes", all->bytes);
    pagecage_count(message, "blocks", all->pieces);
    pagecage_number(message, "covered_fraction", (double)all->bytes / (double)all->size_bytes);
    pagecage_checksum(message, "checksum", all->sum);
}

static void add_faults(struct pagecage_message *message, const struct run *run) {
    pagecage_integer(message, "major_faults", run->after.ru_majflt - run->before.ru_majflt);
    pagecage_integer(message, "minor_faults", run->after.ru_minflt - run->before.ru_minflt);
}

static void print_sample(const struct run *run, const struct totals *all) {
    struct pagecage_message sample = pagecage_begin("sample");
    pagecage_count(&sample, "iteration", 0);
    add_amounts(&sample, run, all);
    add_faults(&sample, run);
    pagecage_send(&sample);
}

static void add_thread(struct pagecage_message *message, const struct run *run, const struct totals *all) {
    pagecage_open_array(message, "threads");
    pagecage_open_object(message, NULL);
    pagecage_number(message, "seconds", run->seconds);
    pagecage_count(message, "blocks", all->pieces);
    add_faults(message, run);
    pagecage_integer(message, "voluntary_switches", run->after.ru_nvcsw - run->before.ru_nvcsw);
    pagecage_integer(message, "involuntary_switches", run->after.ru_nivcsw - run->before.ru_nivcsw);
    pagecage_close_object(message);
    pagecage_close_array(message);
}

static void add_files(struct pagecage_message *message, const struct run *run) {
    pagecage_open_array(message, "files");
    for (size_t at = 0; at < run->plan.file_count; at++) {
        const struct source *file = &run->sources[at];
        pagecage_open_object(message, NULL);
        pagecage_number(message, "seconds", (double)(file->ended_ns - file->started_ns) / 1e9);
        pagecage_count(message, "bytes", file->done_bytes);
        pagecage_close_object(message);
    }
    pagecage_close_array(message);
}

/* Prints the closing line; `is_right` counts only if the sums were compared. */
static void print_end(const struct run *run, const struct totals *all, bool is_compared, bool is_right) {
    struct pagecage_message end = pagecage_begin("end");
    add_amounts(&end, run, all);
    pagecage_count(&end, "distinct_bytes", all->bytes);
    if (is_compared) {
        pagecage_bool(&end, "checksum_ok", is_right);
    } else {
        pagecage_null(&end, "checksum_ok");
    }
    add_thread(&end, run, all);
    pagecage_open_object(&end, "setup");
    pagecage_close_object(&end);
    add_files(&end, run);
    pagecage_open_object(&end, "response");
    heartbeat_add_to(&end, &run->heartbeat);
    pagecage_integer(&end, "minor_faults", run->after.ru_minflt - run->before.ru_minflt);
    pagecage_close_object(&end);
    pagecage_null(&end, "heartbeat_hdr_v2_base64");
    pagecage_send(&end);
}

static void open_all(struct run *run) {
    run->sources = calloc(run->plan.file_count, sizeof *run->sources);
    if (run->sources == NULL) {
        fail(FAILED, "not enough memory for %zu files", run->plan.file_count);
    }
    for (size_t at = 0; at < run->plan.file_count; at++) {
        run->sources[at] = source_open(&run->plan, run->plan.files[at]);
    }
    run->heartbeat = heartbeat_new(run->plan.heartbeat_us);
}

int main(int count, char **words) {
    struct run run = {.plan = plan_read(count, words)};
    signal(SIGBUS, on_bus_error);
    open_all(&run);
    if (run.plan.handshake && !pagecage_wait_for_go(0)) {
        return DONE;
    }
    getrusage(RUSAGE_SELF, &run.before);
    scan(&run);
    getrusage(RUSAGE_SELF, &run.after);
    struct totals all = add_up(&run);
    bool compared = run.plan.expect_sidecars && all.bytes == all.size_bytes;
    bool right = all.sum == all.expected;
    print_sample(&run, &all);
    print_end(&run, &all, compared, right);
    if (run.plan.handshake) {
        pagecage_wait_for_close();
    }
    if (compared && !right) {
        fail(FAILED, "the checksum of the files differs from their sidecars");
    }
    return DONE;
}
