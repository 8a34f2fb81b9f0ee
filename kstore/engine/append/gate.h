/* Group commit: of all threads that wait for an offset to be durable, one leads and syncs for all. */
#ifndef KSTORE_GATE_H
#define KSTORE_GATE_H

#include <pthread.h>
#include <stdint.h>

typedef struct ks_gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int64_t reached; /* everything below is durable */
    int leading;
    int failed;
} ks_gate;

static inline void ks_gate_init(ks_gate *g)
{
    pthread_mutex_init(&g->mutex, NULL);
    pthread_cond_init(&g->changed, NULL);
    g->reached = 0;
    g->leading = g->failed = 0;
}

static inline void ks_gate_destroy(ks_gate *g)
{
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->mutex);
}

/* 0: `offset` is reached. 1: the caller leads, and must call ks_gate_leave. -1: a sync has failed. */
static inline int ks_gate_enter(ks_gate *g, int64_t offset)
{
    int status;
    pthread_mutex_lock(&g->mutex);
    while (g->leading && !g->failed && g->reached < offset)
        pthread_cond_wait(&g->changed, &g->mutex);
    if (g->reached >= offset)
        status = 0;
    else if (g->failed)
        status = -1;
    else
        status = g->leading = 1;
    pthread_mutex_unlock(&g->mutex);
    return status;
}

/* Another process has synced, or has taken records back. */
static inline void ks_gate_set(ks_gate *g, int64_t reached)
{
    if (g->reached == reached)
        return;
    pthread_mutex_lock(&g->mutex);
    g->reached = reached;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->mutex);
}

static inline void ks_gate_leave(ks_gate *g, int64_t reached, int failed)
{
    pthread_mutex_lock(&g->mutex);
    if (reached > g->reached)
        g->reached = reached;
    g->failed |= failed;
    g->leading = 0;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->mutex);
}

#endif
