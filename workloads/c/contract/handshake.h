/* The words between a workload and whoever measures it: workloads/README.md, "The handshake". */
#ifndef CONTRACT_HANDSHAKE_H
#define CONTRACT_HANDSHAKE_H

#include <stdbool.h>

/* Prints `ready` and waits for `go`; false when stdin closed instead. */
bool handshake_begin(void);

/* Waits until stdin closes, so that the process's counters can still be read. */
void handshake_end(void);

#endif
