/* Preloaded, it calls a function before each open for reading, rename and unlink: see moments.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>

typedef void callback(const char *call, const char *path);

static callback *called;

void before_each_call(callback *function) { called = function; }

static int opened(const char *name, const char *path, int flags, int mode)
{
    if (called && !(flags & (O_RDWR | O_CREAT | O_DIRECTORY)))
        called("open", path);
    return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, name))(path, flags, mode);
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        va_list rest; \
        va_start(rest, flags); \
        int mode = va_arg(rest, int); \
        va_end(rest); \
        return opened(#name, path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

int rename(const char *path, const char *target)
{
    if (called)
        called("rename", path);
    return ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename"))(path, target);
}

int unlink(const char *path)
{
    if (called)
        called("unlink", path);
    return ((int (*)(const char *))dlsym(RTLD_NEXT, "unlink"))(path);
}
