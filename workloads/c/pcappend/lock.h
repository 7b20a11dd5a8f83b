/* Locks between processes, in shared memory. The mapped methods differ in these only. */
#ifndef PCAPPEND_LOCK_H
#define PCAPPEND_LOCK_H

#include "shared_memory.h"

/* Initialises the locks before fork(2); exits on failure. */
void locks_make(struct locks *locks);

/* A robust mutex (pthread_mutex_lock(3)): if its owner died, the next one gets it. */
void lock_take_mutex(struct locks *locks);
void lock_give_mutex(struct locks *locks);

/* sem_wait(3) and sem_post(3). */
void lock_take_semaphore(struct locks *locks);
void lock_give_semaphore(struct locks *locks);

/* A lock of one word, with futex(2) alone. */
void lock_take_futex(struct locks *locks);
void lock_give_futex(struct locks *locks);

#endif
