/* The file of one run, which goes when the process does, however it ends. */
#ifndef PCAPPEND_SCRATCH_H
#define PCAPPEND_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>

/* Makes an empty file in the directory and puts its name into `path`; ends the process where it cannot. With `keep` it
 * stays. Beside it goes whatever has its name with ".pclog" behind. */
void scratch_make(const char *dir, bool keep, char *path, size_t room);

#endif
