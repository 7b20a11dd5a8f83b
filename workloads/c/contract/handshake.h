/* The handshake between a workload and its harness: workloads/README.md, "The handshake". */
#ifndef CONTRACT_HANDSHAKE_H
#define CONTRACT_HANDSHAKE_H

#include <stdbool.h>

/* Prints `ready` and waits for `go`; returns false if stdin is closed instead. */
bool handshake_begin(void);

/* Waits until stdin is closed, so that the harness can still read the process's counters. */
void handshake_end(void);

#endif
