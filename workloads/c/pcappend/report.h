/* The output lines of one run. */
#ifndef PCAPPEND_REPORT_H
#define PCAPPEND_REPORT_H

#include "method.h"

/* The sum of the writers' results, and the figures of the whole run. */
struct totals {
    struct outcome all; /* from the first start to the last end */
    double append_seconds;
    double with_start_seconds; /* as in the article: from the file's creation to the last exit */
    double setup_seconds, clock_ns;
    uint64_t file_bytes;
};

/* Sets `all` and `append_seconds`; the caller sets the other fields. */
void report_add_up(const struct job *job, struct totals *totals);

/* Prints the `sample` line, and `stopped`, which ends the measured part. */
void report_sample(const struct job *job, const struct totals *totals);

/* Prints the `end` line. */
void report_end(const struct job *job, const struct totals *totals, const struct findings *found);

#endif
