/* futex(2): waiting for a word to change, between processes. */
#ifndef PCAPPEND_FUTEX_H
#define PCAPPEND_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

/* Sleeps while the word has this value, `timeout_ns` at most (0: without end). May return early. */
void futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t timeout_ns);

/* Wakes those that sleep on it. */
void futex_wake(_Atomic uint32_t *word, int count);
void futex_wake_all(_Atomic uint32_t *word);

#endif
