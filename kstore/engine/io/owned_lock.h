/* A lock that knows which thread holds it: acquiring it there fails instead of waiting for ever. Called with the GIL. */
#ifndef KSTORE_OWNED_LOCK_H
#define KSTORE_OWNED_LOCK_H

#include <Python.h>
#include <pthread.h>

#if PY_VERSION_HEX < 0x030D0000
#define Py_IsFinalizing _Py_IsFinalizing
#endif

/* Whether the interpreter ends: what its other threads have, they keep, for they are stopped where they were. */
static inline int ks_is_ending(void)
{
    return Py_IsFinalizing();
}

typedef struct ks_owned_lock {
    pthread_mutex_t mutex; /* a lock of Python's reads the clock to find out that it is free */
    unsigned long owner; /* the thread that has it; 0 for none */
} ks_owned_lock;

/* Also for a child of fork, where a thread that is not there may hold the old one. */
static inline void ks_owned_lock_init(ks_owned_lock *l)
{
    pthread_mutex_init(&l->mutex, NULL);
    l->owner = 0;
}

static inline void ks_owned_lock_destroy(ks_owned_lock *l)
{
    pthread_mutex_destroy(&l->mutex);
}

static inline int ks_owned_lock_is_mine(const ks_owned_lock *l)
{
    return l->owner == PyThread_get_thread_ident();
}

/* Takes it if it is free: 1, else 0. */
static inline int ks_owned_lock_try(ks_owned_lock *l)
{
    if (pthread_mutex_trylock(&l->mutex) != 0)
        return 0;
    l->owner = PyThread_get_thread_ident();
    return 1;
}

/* Waits until it is free, and takes it: 1. 0 without having done so if it would wait for ever: the calling thread has it
 * already, or one that is stopped. */
static inline int ks_owned_lock_acquire(ks_owned_lock *l)
{
    if (ks_owned_lock_try(l))
        return 1;
    if (ks_owned_lock_is_mine(l) || ks_is_ending())
        return 0;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&l->mutex);
    Py_END_ALLOW_THREADS
    l->owner = PyThread_get_thread_ident();
    return 1;
}

static inline void ks_owned_lock_release(ks_owned_lock *l)
{
    l->owner = 0;
    pthread_mutex_unlock(&l->mutex);
}

#endif
