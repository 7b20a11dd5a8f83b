/* One writer: the loop around every method. */
#ifndef PCAPPEND_WRITER_H
#define PCAPPEND_WRITER_H

#include "method.h"

/* Makes ready all that a writer needs, parks at the gate, appends its records, and puts its figures into its outcome.
 */
void writer_run(struct process *process, uint32_t number);

#endif
