/* Calls of Linux on files that Cython does not declare, or that must not change errno. */
#ifndef KSTORE_SYSTEM_H
#define KSTORE_SYSTEM_H

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

static inline ssize_t ks_sendfile(int target, int fd, int64_t position, size_t size)
{
    off_t at = position;
    return sendfile(target, fd, &at, size);
}

static inline int ks_advise(int fd, int64_t position, int64_t size, int advice)
{
    static const int kinds[] = {POSIX_FADV_NORMAL, POSIX_FADV_SEQUENTIAL, POSIX_FADV_WILLNEED, POSIX_FADV_DONTNEED};
    return posix_fadvise(fd, position, size, kinds[advice]);
}

/* The mapping is never touched, so a file that is shortened meanwhile does no harm. */
static inline int ks_resident(int fd, int64_t position, size_t size, unsigned char *into)
{
    void *at = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, position);
    int status, error;
    if (at == MAP_FAILED)
        return -1;
    status = mincore(at, size, into);
    error = errno;
    munmap(at, size);
    errno = error;
    return status;
}

static inline void ks_write_back(int fd, int64_t position, int64_t size)
{
    int error = errno;
    (void)sync_file_range(fd, position, size, SYNC_FILE_RANGE_WRITE);
    errno = error;
}

static inline int ks_fallocate(int fd, int keep_size, int64_t position, int64_t size)
{
    return fallocate(fd, keep_size ? FALLOC_FL_KEEP_SIZE : 0, position, size);
}

static inline ssize_t ks_copy(int source, int target, int64_t position, size_t size)
{
    off_t at = position, into = position;
    return copy_file_range(source, &at, target, &into, size, 0);
}

#endif
