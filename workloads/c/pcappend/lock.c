#define _GNU_SOURCE

#include "lock.h"

#include "contract/failure.h"
#include "futex.h"

#include <errno.h>
#include <string.h>

void locks_make(struct locks *locks) {
    pthread_mutexattr_t attributes;
    int error = pthread_mutexattr_init(&attributes);
    error = error != 0 ? error : pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    error = error != 0 ? error : pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    error = error != 0 ? error : pthread_mutex_init(&locks->mutex, &attributes);
    if (error != 0 || sem_init(&locks->semaphore, 1, 1) != 0) {
        fail(CANNOT_HERE, "cannot create a lock between processes: %s", strerror(error != 0 ? error : errno));
    }
    atomic_store(&locks->futex, 0);
}

void lock_take_mutex(struct locks *locks) {
    if (pthread_mutex_lock(&locks->mutex) == EOWNERDEAD) {
        pthread_mutex_consistent(&locks->mutex);
    }
}

void lock_give_mutex(struct locks *locks) {
    pthread_mutex_unlock(&locks->mutex);
}

void lock_take_semaphore(struct locks *locks) {
    while (sem_wait(&locks->semaphore) != 0 && errno == EINTR) {
    }
}

void lock_give_semaphore(struct locks *locks) {
    sem_post(&locks->semaphore);
}

/* 0 is free, 1 taken, 2 taken with possible sleepers: only then must the release wake one. */
void lock_take_futex(struct locks *locks) {
    uint32_t seen = 0;
    if (atomic_compare_exchange_strong(&locks->futex, &seen, 1)) {
        return;
    }
    while (atomic_exchange(&locks->futex, 2) != 0) {
        futex_wait(&locks->futex, 2, 0);
    }
}

void lock_give_futex(struct locks *locks) {
    if (atomic_exchange(&locks->futex, 0) == 2) {
        futex_wake(&locks->futex, 1);
    }
}
