/* Which process, in which boot of the machine; and whether it still lives. */
#ifndef PCLOG_IDENTITY_H
#define PCLOG_IDENTITY_H

#include <stdint.h>

/* A process in one word of 62 bits: its pid, when it started (a later process with the same pid started later), and a
 * few bits of the boot. 0 is nobody. */
typedef uint64_t pclog_identity;

#define PCLOG_IDENTITY_BITS 62

enum pclog_life { PCLOG_DEAD, PCLOG_STOPPED, PCLOG_RUNNING };

/* The calling process; 0 where /proc does not say. */
pclog_identity pclog_self(void);

/* What proc_pid_stat(5) says: stopped is T or t, dead is gone, a zombie, or another process with that pid. Whoever
 * cannot be looked at counts as running. */
enum pclog_life pclog_life_of(pclog_identity identity);

/* /proc/sys/kernel/random/boot_id, empty where it cannot be read; `text` has room for 40. */
void pclog_boot_id(char text[40]);

/* The inode of /proc/self/ns/pid, 0 where there is none. */
uint64_t pclog_pid_namespace(void);

#endif
