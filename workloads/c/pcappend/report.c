#define _GNU_SOURCE

#include "report.h"

#include "pagecage_workload.h"

#include <string.h>
#include <unistd.h>

void report_add_up(const struct job *job, struct totals *totals) {
    struct outcome *all = &totals->all;
    for (uint32_t writer = 0; writer < job->memory->writers; writer++) {
        const struct outcome *one = &job->memory->outcomes[writer];
        all->started_ns = writer == 0 || one->started_ns < all->started_ns ? one->started_ns : all->started_ns;
        all->ended_ns = one->ended_ns > all->ended_ns ? one->ended_ns : all->ended_ns;
        all->offered += one->offered;
        all->offered_bytes += one->offered_bytes;
        all->failed += one->failed;
        all->syncs += one->syncs;
        for (int error = 0; error < ERRNO_COUNT; error++) {
            all->errors[error] += one->errors[error];
        }
        all->minor_faults += one->minor_faults;
        all->major_faults += one->major_faults;
        all->voluntary_switches += one->voluntary_switches;
        all->involuntary_switches += one->involuntary_switches;
        histogram_merge(&all->call, &one->call);
        histogram_merge(&all->late, &one->late);
        histogram_merge(&all->sync, &one->sync);
    }
    totals->append_seconds = (double)(all->ended_ns - all->started_ns) / 1e9;
}

/* Adds null where there is nothing to divide by. */
static void add_ratio(struct pagecage_message *message, const char *key, double above, double below) {
    if (below > 0.0) {
        pagecage_number(message, key, above / below);
    } else {
        pagecage_null(message, key);
    }
}

static void add_optional(struct pagecage_message *message, const char *key, bool is_known, double value) {
    if (is_known) {
        pagecage_number(message, key, value);
    } else {
        pagecage_null(message, key);
    }
}

static void add_amounts(struct pagecage_message *message, const struct job *job, const struct totals *totals,
                        uint64_t records, uint64_t bytes) {
    double wanted = (double)job->plan->ops * job->memory->writers;
    pagecage_number(message, "seconds", totals->append_seconds);
    pagecage_count(message, "bytes", bytes);
    pagecage_count(message, "blocks", records);
    add_ratio(message, "covered_fraction", (double)records, wanted);
}

/* Counts attempted records; the file has not been verified yet. */
void report_sample(const struct job *job, const struct totals *totals) {
    struct pagecage_message sample = pagecage_begin("sample");
    pagecage_count(&sample, "iteration", 0);
    add_amounts(&sample, job, totals, totals->all.offered, totals->all.offered_bytes);
    pagecage_null(&sample, "checksum");
    pagecage_count(&sample, "major_faults", totals->all.major_faults);
    pagecage_count(&sample, "minor_faults", totals->all.minor_faults);
    pagecage_send(&sample);
    pagecage_stopped();
}

static void add_threads(struct pagecage_message *message, const struct job *job) {
    pagecage_open_array(message, "threads");
    for (uint32_t writer = 0; writer < job->memory->writers; writer++) {
        const struct outcome *one = &job->memory->outcomes[writer];
        pagecage_open_object(message, NULL);
        pagecage_number(message, "seconds", (double)(one->ended_ns - one->started_ns) / 1e9);
        pagecage_count(message, "blocks", one->offered);
        pagecage_count(message, "major_faults", one->major_faults);
        pagecage_count(message, "minor_faults", one->minor_faults);
        pagecage_count(message, "voluntary_switches", one->voluntary_switches);
        pagecage_count(message, "involuntary_switches", one->involuntary_switches);
        pagecage_close_object(message);
    }
    pagecage_close_array(message);
}

static void add_errors(struct pagecage_message *message, const struct outcome *all) {
    pagecage_open_object(message, "errors");
    for (int error = 0; error < ERRNO_COUNT; error++) {
        const char *name = strerrorname_np(error);
        if (all->errors[error] > 0) {
            pagecage_count(message, name == NULL || error == 0 ? "unknown" : name, all->errors[error]);
        }
    }
    pagecage_close_object(message);
}

static void add_speed(struct pagecage_message *message, const struct totals *totals, const struct findings *found) {
    double seconds = totals->append_seconds, bytes = (double)found->record_bytes;
    pagecage_number(message, "append_seconds", seconds);
    pagecage_number(message, "with_start_seconds", totals->with_start_seconds);
    add_ratio(message, "wall_per_call_us", seconds * 1e6, (double)totals->all.offered);
    add_ratio(message, "bytes_per_second", bytes, seconds);
    add_ratio(message, "gibit_per_second", bytes * 8 / (double)(1 << 30), seconds);
    add_ratio(message, "records_per_second", (double)found->records, seconds);
}

/* As in the article: records offered, those of failed calls included, over the whole time. */
static void add_whole_speed(struct pagecage_message *message, const struct totals *totals) {
    double seconds = totals->with_start_seconds, bytes = (double)totals->all.offered_bytes;
    add_ratio(message, "with_start_per_call_us", seconds * 1e6, (double)totals->all.offered);
    add_ratio(message, "with_start_gibit_per_second", bytes * 8 / (double)(1 << 30), seconds);
}

static void add_delays(struct pagecage_message *message, const struct job *job, const struct outcome *all) {
    histogram_add_to(message, &all->call, "call");
    histogram_add_to(message, &all->late, "late");
    add_optional(message, "offered_per_second", job->plan->rate > 0.0, job->plan->rate);
    pagecage_count(message, "sync_calls", all->syncs);
    bool has_synced = all->sync.count > 0;
    add_optional(message, "sync_p50_us", has_synced, (double)histogram_quantile_ns(&all->sync, 5000) / 1e3);
    add_optional(message, "sync_p99_us", has_synced, (double)histogram_quantile_ns(&all->sync, 9900) / 1e3);
}

static void add_findings(struct pagecage_message *message, const struct findings *found) {
    pagecage_count(message, "records", found->records);
    pagecage_count(message, "lost_records", found->lost_records);
    pagecage_count(message, "lost_bytes", found->lost_bytes);
    pagecage_count(message, "doubled_records", found->doubled_records);
    pagecage_count(message, "torn_records", found->torn_records);
    pagecage_count(message, "disordered_records", found->disordered_records);
    pagecage_count(message, "hole_bytes", found->hole_bytes);
    pagecage_count(message, "stray_bytes", found->stray_bytes);
}

static void add_response(struct pagecage_message *message, const struct job *job, const struct totals *totals,
                         const struct findings *found) {
    const struct outcome *all = &totals->all;
    pagecage_open_object(message, "response");
    add_speed(message, totals, found);
    add_whole_speed(message, totals);
    long line = sysconf(_SC_LEVEL1_DCACHE_LINESIZE); /* 0 where the CPU does not report it */
    add_optional(message, "cache_line_bytes", line > 0, (double)line);
    add_delays(message, job, all);
    add_findings(message, found);
    pagecage_count(message, "failed_calls", all->failed);
    pagecage_count(message, "minor_faults", all->minor_faults);
    pagecage_count(message, "major_faults", all->major_faults);
    pagecage_count(message, "context_switches", all->voluntary_switches + all->involuntary_switches);
    pagecage_count(message, "file_bytes", totals->file_bytes);
    pagecage_close_object(message);
}

void report_end(const struct job *job, const struct totals *totals, const struct findings *found) {
    struct pagecage_message end = pagecage_begin("end");
    add_amounts(&end, job, totals, found->records, found->record_bytes);
    pagecage_count(&end, "distinct_bytes", found->record_bytes);
    pagecage_checksum(&end, "checksum", found->byte_sum);
    pagecage_bool(&end, "checksum_ok", findings_are_good(found));
    add_threads(&end, job);
    pagecage_open_object(&end, "setup");
    pagecage_number(&end, "start_seconds", totals->setup_seconds);
    pagecage_close_object(&end);
    pagecage_number(&end, "clock_ns", totals->clock_ns);
    add_errors(&end, &totals->all);
    if (job->note == NULL) {
        pagecage_null(&end, "note");
    } else {
        pagecage_text(&end, "note", job->note);
    }
    add_response(&end, job, totals, found);
    pagecage_send(&end);
}
