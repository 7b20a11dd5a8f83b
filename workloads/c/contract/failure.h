/* How a workload ends where it cannot go on: one sentence on stderr, and an exit code that says whose fault it was. */
#ifndef CONTRACT_FAILURE_H
#define CONTRACT_FAILURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum exit_code { DONE = 0, FAILED = 1, BAD_ARGUMENTS = 2, CANNOT_HERE = 77 };

/* Each program says its own name, with which its sentences begin. */
extern const char program_name[];

/* Says one sentence on stderr and ends the process. */
_Noreturn void fail(enum exit_code code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Of processes that share this word, 0 at first, only the first that fails says so: they mostly fail for the same
 * reason. */
void fail_together(_Atomic uint32_t *word);

/* Whether this process is to speak, which it may ask once; for those who end without fail(). */
bool fail_may_report(void);

#endif
