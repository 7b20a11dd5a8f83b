/* How a workload ends where it cannot go on: one sentence on stderr, and an exit code that says whose fault it was. */
#ifndef CONTRACT_FAILURE_H
#define CONTRACT_FAILURE_H

enum exit_code { DONE = 0, FAILED = 1, BAD_ARGUMENTS = 2, CANNOT_HERE = 77 };

/* Each program says its own name, with which its sentences begin. */
extern const char program_name[];

/* Says one sentence on stderr and ends the process. */
_Noreturn void fail(enum exit_code code, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
