/* Waiting for a word in shared memory to change, with futex(2). */
#ifndef PCAPPEND_FUTEX_H
#define PCAPPEND_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

/* Sleeps while the word has this value, for at most `timeout_ns` (0: no limit). May return
 * early. */
void futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns);

/* Wakes up to `count` sleepers, or all. */
void futex_wake(_Atomic uint32_t *word, int count);
void futex_wake_all(_Atomic uint32_t *word);

#endif
