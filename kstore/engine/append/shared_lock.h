/* A lock between processes, in memory that all of them map.
 *
 * A process has a number, and a lock of the open file (F_OFD_SETLK) on the byte of that number in a file that all of them
 * have open. The kernel drops that lock when the process ends, so a process that waits finds out whether the one that has
 * the lock still lives. A robust mutex of pthread would not do: the kernel compares thread ids, which processes in several
 * containers share. Numbers are never given twice while any process has the file. */
#ifndef KSTORE_SHARED_LOCK_H
#define KSTORE_SHARED_LOCK_H

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define KS_WAITED_FOR 0x80000000u /* beside the number of the process that has it: others wait */

enum {
    KS_LOCK_TAKEN = 0,
    KS_LOCK_INHERITED = 1, /* taken from a process that died with it */
    KS_LOCK_BUSY = 2,      /* after a while: look for signals, and try again */
    KS_LOCK_NEEDLESS = 3,  /* not taken: another process has done what it was for */
    KS_LOCK_SPINS = 200,
    KS_LOCK_TURNS = 25, /* of 2 ms each, until KS_LOCK_BUSY */
};

/* Whether a process with this number lives. 1 also if that cannot be told. */
static inline int ks_is_living(int fd, uint32_t number)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = number, .l_len = 1};
    return fcntl(fd, F_OFD_GETLK, &lock) < 0 || lock.l_type != F_UNLCK;
}

static inline int ks_shared_lock_try(uint32_t *word, uint32_t me)
{
    uint32_t free = 0;
    return __atomic_compare_exchange_n(word, &free, me, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* `done`: what the process that has the lock works on, or NULL; the lock is needless once it is at least `least`. */
static inline int ks_shared_lock_acquire(uint32_t *word, uint32_t me, int fd, const int64_t *done, int64_t least)
{
    const struct timespec turn = {.tv_sec = 0, .tv_nsec = 2000000};
    uint32_t seen;
    int turns = 0;
    for (int i = 0; i < KS_LOCK_SPINS; i++) {
        if (__atomic_load_n(word, __ATOMIC_RELAXED) == 0 && ks_shared_lock_try(word, me))
            return KS_LOCK_TAKEN;
    }
    for (;;) {
        if (done != NULL && __atomic_load_n(done, __ATOMIC_ACQUIRE) >= least)
            return KS_LOCK_NEEDLESS;
        seen = __atomic_load_n(word, __ATOMIC_RELAXED);
        if (seen == 0) { /* others may wait, too: an owner that has waited wakes one when it releases the lock */
            if (ks_shared_lock_try(word, me | KS_WAITED_FOR))
                return KS_LOCK_TAKEN;
            continue;
        }
        if (!(seen & KS_WAITED_FOR)) {
            if (!__atomic_compare_exchange_n(word, &seen, seen | KS_WAITED_FOR, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
                continue;
            seen |= KS_WAITED_FOR;
        }
        if (syscall(SYS_futex, word, FUTEX_WAIT, seen, &turn, NULL, 0) == 0 || errno != ETIMEDOUT)
            continue;
        if (!ks_is_living(fd, seen & ~KS_WAITED_FOR)) {
            if (__atomic_compare_exchange_n(word, &seen, me | KS_WAITED_FOR, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
                return KS_LOCK_INHERITED;
            continue;
        }
        if (++turns == KS_LOCK_TURNS)
            return KS_LOCK_BUSY;
    }
}

/* `woken`: how many of those that wait go on: one, or all if the lock is needless for most of them now. */
static inline void ks_shared_lock_release(uint32_t *word, int woken)
{
    if (__atomic_exchange_n(word, 0, __ATOMIC_RELEASE) & KS_WAITED_FOR)
        syscall(SYS_futex, word, FUTEX_WAKE, woken, NULL, NULL, 0);
}

#endif
