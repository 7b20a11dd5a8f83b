/* The file of one run, which is removed when the process ends. */
#ifndef PCAPPEND_SCRATCH_H
#define PCAPPEND_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>

/* Creates an empty file in the directory and stores its name in `path`; exits on failure. Unless
 * `keep` is set, it is removed at exit, together with its ".pclog" file. */
void scratch_make(const char *dir, bool keep, char *path, size_t room);

/* Removes it at once, if it exists; for signal handlers, because atexit(3) does not cover
 * signals. */
void scratch_remove(void);

#endif
