/* Locks between processes, each in the arena: what the mapped methods differ in. */
#ifndef PCAPPEND_LOCK_H
#define PCAPPEND_LOCK_H

#include "shared_memory.h"

/* Makes them ready, before the fork; ends the process where it cannot. */
void locks_make(struct locks *locks);

/* pthread_mutex_lock(3) of a robust mutex: where its owner died, the next one gets it. */
void lock_take_mutex(struct locks *locks);
void lock_give_mutex(struct locks *locks);

/* sem_wait(3) and sem_post(3). */
void lock_take_semaphore(struct locks *locks);
void lock_give_semaphore(struct locks *locks);

/* A lock of one word, on futex(2) alone. */
void lock_take_futex(struct locks *locks);
void lock_give_futex(struct locks *locks);

#endif
