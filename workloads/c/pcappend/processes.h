/* The processes of one run, from fork(2) to exit. None of them outlives the parent. */
#ifndef PCAPPEND_PROCESSES_H
#define PCAPPEND_PROCESSES_H

#include "method.h"

/* Forks all processes and waits until their writers wait at the gate. */
void processes_start(const struct job *job);

/* Opens the gate and waits until all processes have ended. At the deadline it asks them to stop. If
 * one of them fails, it kills the others and exits with a message. */
void processes_run(const struct job *job);

/* Kills all processes: after a signal, or if `go` never came. */
void processes_kill(void);

#endif
