#define _GNU_SOURCE

#include "turn.h"

#include "contract/failure.h"
#include "futex.h"

#include <errno.h>
#include <string.h>

void turn_make(struct turn *turn) {
    pthread_mutexattr_t attributes;
    int error = pthread_mutexattr_init(&attributes);
    error = error != 0 ? error : pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    error = error != 0 ? error : pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    error = error != 0 ? error : pthread_mutex_init(&turn->mutex, &attributes);
    if (error != 0 || sem_init(&turn->semaphore, 1, 1) != 0) {
        fail(CANNOT_HERE, "cannot make a lock between processes: %s", strerror(error != 0 ? error : errno));
    }
    atomic_store(&turn->futex, 0);
}

void turn_take_mutex(struct turn *turn) {
    if (pthread_mutex_lock(&turn->mutex) == EOWNERDEAD) {
        pthread_mutex_consistent(&turn->mutex);
    }
}

void turn_give_mutex(struct turn *turn) {
    pthread_mutex_unlock(&turn->mutex);
}

void turn_take_semaphore(struct turn *turn) {
    while (sem_wait(&turn->semaphore) != 0 && errno == EINTR) {
    }
}

void turn_give_semaphore(struct turn *turn) {
    sem_post(&turn->semaphore);
}

/* 0 is free, 1 taken, 2 taken and somebody may sleep: then, and only then, giving it back has to wake. */
void turn_take_futex(struct turn *turn) {
    uint32_t seen = 0;
    if (atomic_compare_exchange_strong(&turn->futex, &seen, 1)) {
        return;
    }
    while (atomic_exchange(&turn->futex, 2) != 0) {
        futex_wait(&turn->futex, 2, 0);
    }
}

void turn_give_futex(struct turn *turn) {
    if (atomic_exchange(&turn->futex, 0) == 2) {
        futex_wake(&turn->futex, 1);
    }
}
