/* The processes of one run: started before `ready`, let go together, waited for, and never left behind. */
#ifndef PCAPPEND_CREW_H
#define PCAPPEND_CREW_H

#include "method.h"

/* Forks them all and waits until each of their writers stands at the gate. */
void crew_start(const struct job *job);

/* Opens the gate and waits until all have ended, telling them to stop when the time is up. When one dies the others are
 * killed, and this process ends with a sentence. */
void crew_work(const struct job *job);

/* Lets them go without any work, where no `go` came. */
void crew_dismiss(void);

#endif
