"""A library that replaces pthread_create: it counts new threads, and refuses or loses them."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.processes import run_python

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
int refused, lost, begun;
static void *nothing(void *p)
{
    return p;
}
int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *p)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    real = dlsym(RTLD_NEXT, "pthread_create");
    if (refused)
        return EAGAIN;
    begun++;
    return real(t, a, lost ? nothing : f, p);
}
"""
BEGIN = """
import ctypes, sys
_library = ctypes.CDLL(sys.argv[1])
# pthread_create fails; makes a thread that ends at once, as one of CPython's without memory; its calls so far
refused, lost, begun = (ctypes.c_int.in_dll(_library, name) for name in ("refused", "lost", "begun"))
path = sys.argv[2]
"""


def run_with_library(program: str, directory: Path) -> "subprocess.CompletedProcess[str]":
    """Runs a program that finds `refused`, `lost`, `begun` and a `path` in the directory."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, library = directory / "threads.c", directory / "threads.so"
    source.write_text(SOURCE)
    build = [compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(build, check=True)
    # AddressSanitizer comes first
    preload = ":".join(filter(None, (os.environ.get("LD_PRELOAD"), str(library))))
    return run_python(BEGIN + program, library, directory / "t-0", LD_PRELOAD=preload)
