#define _GNU_SOURCE

#include "report.h"

#include <inttypes.h>
#include <stdio.h>
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

static void print_amounts(const struct job *job, const struct totals *totals, uint64_t records, uint64_t bytes) {
    double wanted = (double)job->plan->ops * job->memory->writers;
    printf("\"seconds\":%.9f,\"bytes\":%" PRIu64 ",\"blocks\":%" PRIu64 ",\"covered_fraction\":%.9f,",
           totals->append_seconds, bytes, records, (double)records / wanted);
}

/* Counts attempted records; the file has not been verified yet. */
void report_sample(const struct job *job, const struct totals *totals) {
    printf("{\"type\":\"sample\",\"iteration\":0,");
    print_amounts(job, totals, totals->all.offered, totals->all.offered_bytes);
    printf("\"checksum\":null,\"major_faults\":%" PRIu64 ",\"minor_faults\":%" PRIu64 "}\n{\"type\":\"stopped\"}\n",
           totals->all.major_faults, totals->all.minor_faults);
    fflush(stdout);
}

static void print_threads(const struct job *job) {
    printf("\"threads\":[");
    for (uint32_t writer = 0; writer < job->memory->writers; writer++) {
        const struct outcome *one = &job->memory->outcomes[writer];
        printf("%s{\"seconds\":%.9f,\"blocks\":%" PRIu64 ",\"major_faults\":%" PRIu64 ",\"minor_faults\":%" PRIu64,
               writer > 0 ? "," : "", (double)(one->ended_ns - one->started_ns) / 1e9, one->offered, one->major_faults,
               one->minor_faults);
        printf(",\"voluntary_switches\":%" PRIu64 ",\"involuntary_switches\":%" PRIu64 "}", one->voluntary_switches,
               one->involuntary_switches);
    }
    printf("],");
}

static void print_errors(const struct outcome *all) {
    const char *comma = "";
    printf("\"errors\":{");
    for (int error = 0; error < ERRNO_COUNT; error++) {
        const char *name = strerrorname_np(error);
        if (all->errors[error] > 0) {
            printf("%s\"%s\":%" PRIu64, comma, name == NULL || error == 0 ? "unknown" : name, all->errors[error]);
            comma = ",";
        }
    }
    printf("},");
}

static void print_speed(const struct totals *totals, const struct findings *found) {
    double seconds = totals->append_seconds, bytes = (double)found->record_bytes;
    printf("\"append_seconds\":%.9f,\"with_start_seconds\":%.9f,", seconds, totals->with_start_seconds);
    printf("\"wall_per_call_us\":%.6f,", seconds * 1e6 / (double)totals->all.offered);
    printf("\"bytes_per_second\":%.3f,\"gibit_per_second\":%.6f,\"records_per_second\":%.3f,", bytes / seconds,
           bytes * 8 / (double)(1 << 30) / seconds, (double)found->records / seconds);
}

/* As in the article: records offered, those of failed calls included, over the whole time. */
static void print_whole_speed(const struct totals *totals) {
    double seconds = totals->with_start_seconds;
    printf("\"with_start_per_call_us\":%.6f,", seconds * 1e6 / (double)totals->all.offered);
    printf("\"with_start_gibit_per_second\":%.6f,",
           (double)totals->all.offered_bytes * 8 / (double)(1 << 30) / seconds);
}

static void print_optional(const char *name, bool is_known, double value) {
    if (is_known) {
        printf("\"%s\":%.3f,", name, value);
    } else {
        printf("\"%s\":null,", name);
    }
}

static void print_delays(const struct job *job, const struct outcome *all) {
    histogram_print(&all->call, "call");
    printf(",");
    histogram_print(&all->late, "late");
    printf(",");
    print_optional("offered_per_second", job->plan->rate > 0.0, job->plan->rate);
    printf("\"sync_calls\":%" PRIu64 ",", all->syncs);
    print_optional("sync_p50_us", all->sync.count > 0, (double)histogram_quantile_ns(&all->sync, 5000) / 1e3);
    print_optional("sync_p99_us", all->sync.count > 0, (double)histogram_quantile_ns(&all->sync, 9900) / 1e3);
}

static void print_findings(const struct findings *found) {
    printf("\"records\":%" PRIu64 ",\"lost_records\":%" PRIu64 ",\"lost_bytes\":%" PRIu64 ",", found->records,
           found->lost_records, found->lost_bytes);
    printf("\"doubled_records\":%" PRIu64 ",\"torn_records\":%" PRIu64 ",\"disordered_records\":%" PRIu64 ",",
           found->doubled_records, found->torn_records, found->disordered_records);
    printf("\"hole_bytes\":%" PRIu64 ",\"stray_bytes\":%" PRIu64 ",", found->hole_bytes, found->stray_bytes);
}

static void print_response(const struct job *job, const struct totals *totals, const struct findings *found) {
    const struct outcome *all = &totals->all;
    printf("\"response\":{");
    print_speed(totals, found);
    print_whole_speed(totals);
    long line = sysconf(_SC_LEVEL1_DCACHE_LINESIZE); /* 0 where the CPU does not report it */
    print_optional("cache_line_bytes", line > 0, (double)line);
    print_delays(job, all);
    print_findings(found);
    printf("\"failed_calls\":%" PRIu64 ",\"minor_faults\":%" PRIu64 ",\"major_faults\":%" PRIu64 ",", all->failed,
           all->minor_faults, all->major_faults);
    printf("\"context_switches\":%" PRIu64 ",\"file_bytes\":%" PRIu64 "}",
           all->voluntary_switches + all->involuntary_switches, totals->file_bytes);
}

void report_end(const struct job *job, const struct totals *totals, const struct findings *found) {
    printf("{\"type\":\"end\",");
    print_amounts(job, totals, found->records, found->record_bytes);
    printf("\"distinct_bytes\":%" PRIu64 ",\"checksum\":\"%" PRIu64 "\",\"checksum_ok\":%s,", found->record_bytes,
           found->byte_sum, findings_are_good(found) ? "true" : "false");
    print_threads(job);
    printf("\"setup\":{\"start_seconds\":%.9f},\"clock_ns\":%.3f,", totals->setup_seconds, totals->clock_ns);
    print_errors(&totals->all);
    if (job->note == NULL) {
        printf("\"note\":null,");
    } else {
        printf("\"note\":\"%s\",", job->note);
    }
    print_response(job, totals, found);
    printf("}\n");
    fflush(stdout);
}
