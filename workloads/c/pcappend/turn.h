/* Locks between processes, each in the arena: what the mapped methods differ in. */
#ifndef PCAPPEND_TURN_H
#define PCAPPEND_TURN_H

#include "arena.h"

/* Makes them ready, before the fork; ends the process where it cannot. */
void turn_make(struct turn *turn);

/* pthread_mutex_lock(3) of a robust mutex: where its owner died, the next one gets it. */
void turn_take_mutex(struct turn *turn);
void turn_give_mutex(struct turn *turn);

/* sem_wait(3) and sem_post(3). */
void turn_take_semaphore(struct turn *turn);
void turn_give_semaphore(struct turn *turn);

/* A lock of one word, on futex(2) alone. */
void turn_take_futex(struct turn *turn);
void turn_give_futex(struct turn *turn);

#endif
