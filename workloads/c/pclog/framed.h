#ifndef PCLOG_FRAMED_H
#define PCLOG_FRAMED_H

#include "handle.h"

/* pclog_append for a writer of a framed log. */
int pclog_append_framed(pclog_writer *writer, const void *record, size_t bytes, uint64_t *offset);

#endif
