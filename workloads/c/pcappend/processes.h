/* The processes of one run: started before `ready`, let go together, waited for, and never left behind. */
#ifndef PCAPPEND_PROCESSES_H
#define PCAPPEND_PROCESSES_H

#include "method.h"

/* Forks them all and waits until each of their writers stands at the gate. */
void processes_start(const struct job *job);

/* Opens the gate and waits until all have ended, telling them to stop when the time is up. When one dies the others are
 * killed, and this process ends with a sentence. */
void processes_run(const struct job *job);

/* Ends them where they stand: no `go` came, or a signal did. */
void processes_kill(void);

#endif
