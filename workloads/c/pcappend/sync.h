/* --fsync: settling what was appended. */
#ifndef PCAPPEND_SYNC_H
#define PCAPPEND_SYNC_H

#include "method.h"

/* Everything that this writer appended is on the disk when it returns, by a sync of its own or, with --fsync group, by
 * somebody's that began after its records were in the file. Returns 0 or the errno of that sync. */
int sync_writer(struct writer *writer);

#endif
