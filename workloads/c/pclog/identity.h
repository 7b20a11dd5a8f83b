/* Identities of processes, unique across pid reuse and reboots, and their state. */
#ifndef PCLOG_IDENTITY_H
#define PCLOG_IDENTITY_H

#include <stdint.h>

/* A process in one word of 62 bits: its pid, its start time (which differs if the pid is reused),
 * and a few bits of the boot id. 0 is no process. */
typedef uint64_t pclog_identity;

#define PCLOG_IDENTITY_BITS 62

enum pclog_life { PCLOG_DEAD, PCLOG_STOPPED, PCLOG_RUNNING };

/* Returns the calling process; 0 if /proc is not available. */
pclog_identity pclog_self(void);

/* Returns the state by proc_pid_stat(5). Stopped is T or t. Dead is a missing process, a zombie, or
 * another process with that pid. A process that cannot be inspected counts as running. */
enum pclog_life pclog_life_of(pclog_identity identity);

/* Reads /proc/sys/kernel/random/boot_id into `text`; empty if it cannot be read. */
void pclog_boot_id(char text[40]);

/* Returns the inode of /proc/self/ns/pid, 0 if there is none. */
uint64_t pclog_pid_namespace(void);

#endif
