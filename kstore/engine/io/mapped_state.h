/* Whether a mapping can still be relied on: no longer once another program has made its file shorter. */
#ifndef KSTORE_MAPPED_STATE_H
#define KSTORE_MAPPED_STATE_H

#include <stdint.h>
#include <sys/stat.h>

typedef struct ks_mapped_state {
    int64_t length; /* of the file, unless another program changes it */
    int fd;
    int lost; /* 0, or one of these */
} ks_mapped_state;

enum { KS_SHORTER = 1, KS_ZEROS = 2 }; /* the file was found to be shorter; zeros are in place of the mapping */

/* Whether the mapping is lost, asked after something was read from it: a thread that has seen its zeros sees this too. */
static inline int ks_is_lost(const ks_mapped_state *state)
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&state->lost, __ATOMIC_RELAXED);
}

/* ks_is_lost, after it has asked for the length of the file. Our own change of the length may be under way meanwhile: it is set
   before the file becomes shorter, and after it has become longer. */
static inline int ks_look(ks_mapped_state *state)
{
    struct stat st;
    int64_t before = __atomic_load_n(&state->length, __ATOMIC_ACQUIRE), after;
    if (fstat(state->fd, &st) == 0) {
        after = __atomic_load_n(&state->length, __ATOMIC_ACQUIRE);
        if (st.st_size < (before < after ? before : after) && !ks_is_lost(state))
            __atomic_store_n(&state->lost, KS_SHORTER, __ATOMIC_RELEASE);
    }
    return ks_is_lost(state);
}

#endif
