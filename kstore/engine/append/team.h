/* Work in C that is divided into parts, for the thread that has it and for helpers that come for as long as it takes.

   Helpers know nothing of Python. Whoever is free takes the next part, so a helper that cannot be started, or is late,
   leaves its parts to the others; nobody waits for one that has none. */
#ifndef KSTORE_TEAM_H
#define KSTORE_TEAM_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

enum { KS_HELPER_STACK = 1 << 18 };

/* Does a part; not 0: no further part is begun. */
typedef int (*ks_part)(void *work, int part);

typedef struct ks_team {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    ks_part part;
    void *work; /* the caller's: of use to whoever has a part only */
    int parts, next;
    int busy; /* threads that have a part */
    int status;
    int users; /* of this struct; the last one frees it */
} ks_team;

/* How many processors this thread may run on. */
static inline int ks_usable_processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* Takes part after part, until none is left. */
static void ks_team_work(ks_team *t)
{
    int part, status;
    pthread_mutex_lock(&t->mutex);
    while (t->next < t->parts) {
        part = t->next++;
        t->busy++;
        pthread_mutex_unlock(&t->mutex);
        status = t->part(t->work, part);
        pthread_mutex_lock(&t->mutex);
        if (status != 0) {
            t->status = status;
            t->next = t->parts;
        }
        if (--t->busy == 0)
            pthread_cond_signal(&t->changed);
    }
    pthread_mutex_unlock(&t->mutex);
}

static void ks_team_leave(ks_team *t)
{
    int left;
    pthread_mutex_lock(&t->mutex);
    left = --t->users;
    pthread_mutex_unlock(&t->mutex);
    if (left == 0) {
        pthread_cond_destroy(&t->changed);
        pthread_mutex_destroy(&t->mutex);
        free(t);
    }
}

static void *ks_team_help(void *team)
{
    ks_team_work((ks_team *)team);
    ks_team_leave((ks_team *)team);
    return NULL;
}

/* Starts up to so many helpers, as far as there can be more threads; how many. */
static int ks_team_start(ks_team *t, int helpers)
{
    static const int own[] = {SIGBUS, SIGFPE, SIGILL, SIGSEGV}; /* of the thread whose fault they are */
    pthread_attr_t attributes;
    pthread_t id;
    sigset_t blocked, before;
    int begun = 0, failed, i;
    if (pthread_attr_init(&attributes) != 0)
        return 0;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, KS_HELPER_STACK);
    sigfillset(&blocked); /* other signals are for the threads of the program */
    for (i = 0; i < (int)(sizeof(own) / sizeof(own[0])); i++)
        sigdelset(&blocked, own[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    for (failed = 0; begun < helpers && !failed; begun += !failed) {
        pthread_mutex_lock(&t->mutex);
        t->users++;
        pthread_mutex_unlock(&t->mutex);
        failed = pthread_create(&id, &attributes, ks_team_help, t);
        if (failed)
            ks_team_leave(t);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return begun;
}

/* Does all parts, with a helper for each but one; 0, or the status of a part that ended it. `begun`: how many helpers
   there were. Without the GIL. */
static int ks_team_run(ks_part part, void *work, int parts, int *begun)
{
    ks_team *t = parts > 1 ? calloc(1, sizeof(*t)) : NULL;
    int i, status = 0;
    *begun = 0;
    if (t == NULL) {
        for (i = 0; i < parts && status == 0; i++)
            status = part(work, i);
        return status;
    }
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->changed, NULL);
    t->part = part;
    t->work = work;
    t->parts = parts;
    t->users = 1;
    *begun = ks_team_start(t, parts - 1);
    ks_team_work(t);
    pthread_mutex_lock(&t->mutex);
    while (t->busy > 0)
        pthread_cond_wait(&t->changed, &t->mutex);
    status = t->status;
    pthread_mutex_unlock(&t->mutex);
    ks_team_leave(t);
    return status;
}

#endif
