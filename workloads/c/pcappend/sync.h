/* The syncs of --fsync. */
#ifndef PCAPPEND_SYNC_H
#define PCAPPEND_SYNC_H

#include "method.h"

/* Waits until everything that this writer appended is on the disk. It syncs itself or, with --fsync
 * group, shares a sync of another writer that began after its records were in the file. Returns 0
 * or the errno of the sync. */
int sync_writer(struct writer *writer);

#endif
