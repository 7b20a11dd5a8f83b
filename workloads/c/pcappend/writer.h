/* One writer: the loop that is common to all methods. */
#ifndef PCAPPEND_WRITER_H
#define PCAPPEND_WRITER_H

#include "method.h"

/* Sets up a writer, waits at the gate, appends its records, and stores the results in its
 * outcome. */
void writer_run(struct process *process, uint32_t number);

#endif
