/* The lines of one run. */
#ifndef PCAPPEND_REPORT_H
#define PCAPPEND_REPORT_H

#include "method.h"

/* The writers' outcomes added up, and what only the whole run has. */
struct totals {
    struct outcome all; /* started first, ended last */
    double append_seconds;
    double with_start_seconds; /* with fork, making and opening the file, and exit: the article's timer */
    double setup_seconds, clock_ns;
    uint64_t file_bytes;
};

/* Adds up what the writers left; the other fields are the caller's. */
void report_add_up(const struct job *job, struct totals *totals);

/* The `sample` line, and `stopped`: the measured part is over. */
void report_sample(const struct job *job, const struct totals *totals);

/* The `end` line. */
void report_end(const struct job *job, const struct totals *totals, const struct findings *found);

#endif
