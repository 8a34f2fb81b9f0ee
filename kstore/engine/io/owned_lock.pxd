cdef extern from "owned_lock.h":
    ctypedef struct ks_owned_lock:
        pass
    bint ks_is_ending()
    void ks_owned_lock_init(ks_owned_lock *lock)
    void ks_owned_lock_destroy(ks_owned_lock *lock)
    bint ks_owned_lock_is_mine(const ks_owned_lock *lock)
    bint ks_owned_lock_try(ks_owned_lock *lock)
    bint ks_owned_lock_acquire(ks_owned_lock *lock)
    void ks_owned_lock_release(ks_owned_lock *lock)
