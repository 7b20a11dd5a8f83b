/* Failure of a workload: one sentence on stderr, and an exit code that tells its kind. */
#ifndef CONTRACT_FAILURE_H
#define CONTRACT_FAILURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum exit_code { DONE = 0, FAILED = 1, BAD_ARGUMENTS = 2, CANNOT_HERE = 77 };

/* Defined by each program; messages begin with it. */
extern const char program_name[];

/* Prints one sentence on stderr and exits. */
_Noreturn void fail(enum exit_code code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Among processes that share this word, initially 0, only the first failure is reported: they
 * mostly fail for the same reason. */
void fail_together(_Atomic uint32_t *word);

/* Returns whether this process is the one to report a failure; may be called once, by code that
 * exits without fail().
 * */
bool fail_may_report(void);

#endif
