/* What becomes of a mapping whose file another program makes shorter.

   The system answers a touch of a page behind the end of the file with the signal SIGBUS, which ends the process. Here a
   handler puts zeros in place of the mapping and notes that it is lost. A signal for anything else goes to the handler
   that was there before. Mappings are added and removed with the GIL; the handler takes no lock. */
#ifndef KSTORE_SIGBUS_H
#define KSTORE_SIGBUS_H

#include "mapped_state.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __linux__

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct ks_mapping {
    struct ks_mapping *next;
    long version; /* odd while the others change */
    uintptr_t start; /* 0: the place is free */
    size_t size;
    ks_mapped_state *state;
} ks_mapping;

enum { KS_ACTIONS = 8 };

static ks_mapping *ks_mappings; /* its places are used again, and never freed */
static struct sigaction ks_actions[KS_ACTIONS]; /* the first: before ours; others: found later in place of ours */
static int ks_newest_action;
static int ks_passing_on; /* how many threads are in a handler that is not ours */

/* Puts zeros in place of the mapping that has this address, or, if that is 0, of all whose files are shorter. Whether
   there were any. */
static int ks_lose_mappings(uintptr_t address)
{
    ks_mapping *m;
    int found = 0;
    for (m = __atomic_load_n(&ks_mappings, __ATOMIC_ACQUIRE); m != NULL; m = m->next) {
        long version = __atomic_load_n(&m->version, __ATOMIC_ACQUIRE);
        uintptr_t start = __atomic_load_n(&m->start, __ATOMIC_RELAXED);
        size_t size = __atomic_load_n(&m->size, __ATOMIC_RELAXED);
        ks_mapped_state *state = __atomic_load_n(&m->state, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if ((version & 1) || __atomic_load_n(&m->version, __ATOMIC_RELAXED) != version || start == 0)
            continue; /* not in use, or not yet */
        if (address ? address < start || address - start >= size : !ks_look(state) || ks_is_lost(state) == KS_ZEROS)
            continue;
        __atomic_store_n(&state->lost, KS_ZEROS, __ATOMIC_RELEASE);
        found |= mmap((void *)start, size, PROT_READ | PROT_WRITE,
                      MAP_FIXED | MAP_ANONYMOUS | MAP_PRIVATE | MAP_NORESERVE, -1, 0) != MAP_FAILED;
    }
    return found;
}

/* Calls the handler that was there before ours; the default is that the signal ends the process.

   A handler that came later may pass a signal on to ours, because it found that before: then it is the turn of the one
   before ours. */
static void ks_pass_on(int number, siginfo_t *info, void *context)
{
    int newest = __atomic_load_n(&ks_newest_action, __ATOMIC_ACQUIRE);
    struct sigaction *action = &ks_actions[__atomic_fetch_add(&ks_passing_on, 1, __ATOMIC_ACQ_REL) ? 0 : newest];
    int sent = info->si_code <= 0; /* by a process: no touch comes again */
    if (action->sa_flags & SA_SIGINFO)
        action->sa_sigaction(number, info, context);
    else if (action->sa_handler == SIG_DFL || (action->sa_handler == SIG_IGN && !sent)) {
        signal(number, SIG_DFL);
        if (sent)
            raise(number);
    } else if (action->sa_handler != SIG_IGN)
        action->sa_handler(number);
    __atomic_fetch_sub(&ks_passing_on, 1, __ATOMIC_ACQ_REL);
}

/* faulthandler, if it came later, ends with raise(): then the signal does not have the address. */
static int ks_is_ours(const siginfo_t *info)
{
    if (info->si_code > 0)
        return info->si_addr != NULL && ks_lose_mappings((uintptr_t)info->si_addr);
    return info->si_code == SI_TKILL && info->si_pid == getpid() && ks_lose_mappings(0);
}

static void ks_on_sigbus(int number, siginfo_t *info, void *context)
{
    int error = errno;
    if (!ks_is_ours(info))
        ks_pass_on(number, info, context);
    errno = error;
}

/* Sees to it that the handler is the first to get the signal. */
static void ks_catch_sigbus(void)
{
    struct sigaction found, ours = {0};
    int at = ks_newest_action;
    if (sigaction(SIGBUS, NULL, &found) < 0 || ((found.sa_flags & SA_SIGINFO) && found.sa_sigaction == ks_on_sigbus))
        return;
    at = ks_mappings == NULL || at == KS_ACTIONS - 1 ? at : at + 1;
    ks_actions[at] = found;
    __atomic_store_n(&ks_newest_action, at, __ATOMIC_RELEASE);
    ours.sa_sigaction = ks_on_sigbus;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    sigaction(SIGBUS, &ours, NULL);
}

static void ks_change_mapping(ks_mapping *m, uintptr_t start, size_t size, ks_mapped_state *state)
{
    __atomic_store_n(&m->version, m->version + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&m->start, start, __ATOMIC_RELAXED);
    __atomic_store_n(&m->size, size, __ATOMIC_RELAXED);
    __atomic_store_n(&m->state, state, __ATOMIC_RELAXED);
    __atomic_store_n(&m->version, m->version + 1, __ATOMIC_RELEASE);
}

/* From here on the mapping becomes zeros, and is lost, where the process would have ended. -1: no memory. */
static int ks_add_mapping(void *start, size_t size, ks_mapped_state *state)
{
    ks_mapping *m = ks_mappings;
    ks_catch_sigbus();
    while (m != NULL && m->start != 0)
        m = m->next;
    if (m == NULL) {
        m = calloc(1, sizeof *m);
        if (m == NULL)
            return -1;
        m->next = ks_mappings;
        __atomic_store_n(&ks_mappings, m, __ATOMIC_RELEASE);
    }
    ks_change_mapping(m, (uintptr_t)start, size, state);
    return 0;
}

static void ks_remove_mapping(void *start)
{
    ks_mapping *m = ks_mappings;
    while (m != NULL && m->start != (uintptr_t)start)
        m = m->next;
    if (m != NULL)
        ks_change_mapping(m, 0, 0, NULL);
}

#else /* another system: such a touch still ends the process */

static inline int ks_add_mapping(void *start, size_t size, ks_mapped_state *state)
{
    (void)start, (void)size, (void)state;
    return 0;
}

static inline void ks_remove_mapping(void *start)
{
    (void)start;
}

#endif
#endif
