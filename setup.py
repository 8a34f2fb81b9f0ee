"""Build the extension modules. Everything else about the project is in pyproject.toml."""

import os
import sysconfig
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

MODULES = sorted(Path("kstore").rglob("*.pyx"))
PUBLIC = sorted(p.as_posix() for p in Path("include").rglob("*") if p.suffix in {".h", ".pxd", ".md"})
PRIVATE = sorted(Path("kstore").rglob("*.h"))
NEEDED = ["setup.py", *PUBLIC, *(p.as_posix() for p in PRIVATE)]
INCLUDE = ["include", *sorted({p.parent.as_posix() for p in PRIVATE})]

MODE = os.environ.get("KSTORE_BUILD", "release")
CFLAGS = ["-std=gnu11", "-Wall", "-Wextra", "-fvisibility=hidden"]
CFLAGS += ["-Werror"] if os.environ.get("KSTORE_WERROR") else []
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
# Modules are many and small: a page between two parts of each would be 3 % of all.
WITHOUT_GAPS = ["-Wl,-z,noseparate-code", "-Wl,-z,norelro"]
MODES: dict[str, tuple[list[str], list[str]]] = {  # compile flags, link flags
    # C needs no tables for unwinding: no exception of C++ goes through it, and a debugger has the debug build
    "release": (
        ["-O3", "-g0", "-fno-asynchronous-unwind-tables"],
        ["-Wl,--strip-all", "-Wl,--build-id=none", *WITHOUT_GAPS],
    ),
    "debug": (["-O0", "-g3", "-UNDEBUG"], []),
    # -Og and -g1 take the compiler a third of the time of -O1 and -g, and a report still has its lines
    "asan": (["-Og", "-g1", "-UNDEBUG", "-fno-omit-frame-pointer", *SANITIZE], SANITIZE),
    "coverage": (["-O1", "-g0", "--coverage", "-fprofile-update=atomic"], ["--coverage"]),
}
cflags, ldflags = MODES[MODE]
# -O3 pays in loops over records and their bytes; what runs once a file or a batch of columns is made small.
SMALL = (
    "kstore/engine/columns/array",
    "kstore/engine/io/",
)


class build_py_with_headers(build_py):
    """Wheels carry include/ as kstore/include/; editable installs read it in place."""

    def _headers(self) -> dict[str, str]:
        return {Path(self.build_lib, "kstore", h).as_posix(): h for h in PUBLIC}

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for target, source in self._headers().items():
                self.mkpath(str(Path(target).parent))
                self.copy_file(source, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        outputs: list[str] = super().get_outputs(include_bytecode)
        return outputs + ([] if self.editable_mode else list(self._headers()))


class build_ext_in_parallel(build_ext):
    """Runs a compiler for each processor, and removes modules whose .pyx is gone: they could still be
    imported."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self) -> None:
        super().run()
        built = [self.get_ext_filename(extension.name) for extension in self.extensions]
        for root in (Path(self.build_lib), Path()):
            kept = {root / path for path in built}
            for module in (root / "kstore").rglob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}"):
                if module not in kept:
                    module.unlink()


def level_for(source: Path) -> list[str]:
    """How much the compiler does for the speed of a module, if that is not -O3."""
    return ["-Os"] if MODE == "release" and source.as_posix().startswith(SMALL) else []


def spare_missing_tracebacks(extensions: list[Extension]) -> list[Extension]:
    """Lets the C code of an `except` clause live without a traceback.

    Cython 3.3 drops its reference to the traceback there, and the process ends if there is none: if there was
    no memory for one."""
    for extension in extensions:
        for source in map(Path, extension.sources):
            written = source.read_text()
            spared = written.replace(
                "#define __Pyx_DECREF(r) Py_DECREF(r)", "#define __Pyx_DECREF(r) Py_XDECREF(r)"
            )
            if spared != written:
                source.write_text(spared)
    return extensions


setup(
    cmdclass={"build_py": build_py_with_headers, "build_ext": build_ext_in_parallel},
    ext_modules=spare_missing_tracebacks(
        cythonize(
            [
                Extension(
                    ".".join(source.with_suffix("").parts),
                    [source.as_posix()],
                    include_dirs=INCLUDE,
                    depends=NEEDED,
                    extra_compile_args=CFLAGS + cflags + level_for(source),
                    extra_link_args=ldflags,
                )
                for source in MODULES
            ],
            include_path=["include"],
            emit_linenums=MODE in {"debug", "coverage"},  # gdb shows, and gcov counts, the lines of the .pyx
            nthreads=os.cpu_count() or 1,
            # the asan build has the same C as the release
            build_dir=f"build/cython-{'release' if MODE == 'asan' else MODE}",
            compiler_directives={
                "language_level": 3,
                "auto_pickle": False,
                "autotestdict": False,
                # A module with public methods says binding=False, embedsignature=True: `inspect` knows their
                # arguments all the same, and it takes 18 KB less than with functions of Cython's own.
                "embedsignature.format": "clinic",
                "warn.unused": True,
            },
        )
    ),
)
