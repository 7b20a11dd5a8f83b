/* Failure of a workload: short names of the library's, and failures of several processes. */
#ifndef CONTRACT_FAILURE_H
#define CONTRACT_FAILURE_H

#include "pagecage_workload.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum exit_code {
    DONE = PAGECAGE_DONE,
    FAILED = PAGECAGE_FAILED,
    BAD_ARGUMENTS = PAGECAGE_BAD_ARGUMENTS,
    CANNOT_HERE = PAGECAGE_CANNOT_HERE,
};

/* Defined by each program, for messages that name it. */
extern const char program_name[];

#define fail(code, ...) pagecage_fail((enum pagecage_exit)(code), __VA_ARGS__)

/* Among processes that share this word, initially 0, only the first failure is reported: they
 * mostly fail for the same reason. */
void fail_together(_Atomic uint32_t *word);

/* Returns whether this process is the one to report a failure; may be called once, by code that
 * exits without fail().
 * */
bool fail_may_report(void);

#endif
