/* The file of one run, which goes when the process does. */
#ifndef PCAPPEND_SCRATCH_H
#define PCAPPEND_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>

/* Makes an empty file in the directory and puts its name into `path`; ends the process where it cannot. With `keep` it
 * stays. Beside it goes whatever has its name with ".pclog" behind. */
void scratch_make(const char *dir, bool keep, char *path, size_t room);

/* Removes it now, where there is one; for a signal's handler, since a process that is killed runs nothing else. */
void scratch_remove(void);

#endif
