"""The public headers alone: what test_headers.c tests, and which compilers take them."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import kstore

INCLUDE = Path(kstore.get_include())
HEADERS = sorted(path.name for path in (INCLUDE / "kstore").glob("*.h"))
SOURCE = Path(__file__).with_name("test_headers.c")
CALLS = {
    "lz4.h": "(uint32_t)ks_unlz4(0, 0, 0, 0)",
    "snappy.h": "(uint32_t)ks_unsnap(0, 0, 0, 0)",
}  # else ks_crc32c
GROUPS = re.findall(r'\{"(\w+)", test_\w+\}', SOURCE.read_text())
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wcast-align", "-Werror"]
CONVERSION = ["-Wconversion", "-Wsign-conversion"]
SANITIZE = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

CC = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
pytestmark = pytest.mark.skipif(CC is None, reason="no C compiler")

C99 = ["-std=c99", "-Wstrict-prototypes"]
CXX11 = ["-x", "c++", "-std=c++11"]
COMPILERS = [
    pytest.param([name, *flags], id=f"{name}-{standard}")
    for name, standard, flags in (
        ("gcc", "c99", C99),
        ("gcc", "c11", ["-std=c11"]),
        ("g++", "c++11", CXX11),
        ("g++", "c++20", ["-x", "c++", "-std=c++20"]),
        ("clang", "c99", C99),
        ("clang++", "c++11", CXX11),
    )
    if shutil.which(name)
]


def run(*command: str | Path) -> str:
    """The standard output of a command that must succeed. A preloaded sanitizer is not for it."""
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("headers") / "test_headers"
    flags = [*C99, *STRICT, *CONVERSION, *SANITIZE, f"-I{INCLUDE}"]
    run(str(CC), *flags, SOURCE, "-o", target)
    return target


@pytest.mark.parametrize("group", GROUPS)
def test_group(program: Path, group: str) -> None:
    assert re.fullmatch(rf"{group}:[\w ]* ok\n", run(program, group))


def test_every_group_is_run(program: Path) -> None:
    assert run(program, "--list").split() == GROUPS


@pytest.mark.parametrize("optimize", ["-O0", "-O3"])
@pytest.mark.parametrize("compiler", COMPILERS)
def test_each_header_alone(compiler: list[str], optimize: str, tmp_path: Path) -> None:
    """Each compiles first in a file, and twice in one; files that include them link together."""
    flags = [*STRICT, *CONVERSION, optimize, f"-I{INCLUDE}"]
    objects = []
    for at, header in enumerate(HEADERS):
        source, target = tmp_path / f"unit{at}.c", tmp_path / f"unit{at}.o"
        function = f"uint32_t unit{at}(void)"
        source.write_text(
            f'#include "kstore/{header}"\n#include "kstore/{header}"\n'
            f"{function};\n{function} {{ return {CALLS.get(header, 'ks_crc32c(0, 0, 0)')}; }}\n"
        )
        run(*compiler, *flags, "-c", source, "-o", target)
        objects.append(target)
    main = tmp_path / "main.c"
    main.write_text("int main(void) { return 0; }\n")
    run(*compiler, main, "-x", "none", *objects, "-o", tmp_path / "linked")
    run(tmp_path / "linked")


@pytest.mark.parametrize("compiler", COMPILERS)
def test_whole_program_with_each_compiler(compiler: list[str], tmp_path: Path) -> None:
    """C++ has other rules for enums, casts and void pointers; the program must mean the same."""
    run(*compiler, *STRICT, "-O2", f"-I{INCLUDE}", SOURCE, "-o", tmp_path / "program")
    assert run(tmp_path / "program").count(" ok\n") == len(GROUPS)


def test_without_assembler(tmp_path: Path) -> None:
    """What other processors get."""
    flags = [*C99, *STRICT, *CONVERSION, *SANITIZE, "-DKS_NO_ASM", f"-I{INCLUDE}"]
    run(str(CC), *flags, SOURCE, "-o", tmp_path / "program")
    assert run(tmp_path / "program", "snappy").endswith(" ok\n")


# what the .pxd files leave out: the parts that the public functions are made of
PRIVATE = re.compile(
    r"ks_read_bytes|ks_short_varint|ks_take_numbers|ks_crc32c_(?!portable)\w+|ks_crc_\w+|(?i:ks_(snappy|lz4)_\w+)"
)


def test_twins_declare_what_the_headers_do() -> None:
    """Every function, constant and struct member of a header is in its .pxd, spelt the same."""
    for header in HEADERS:
        c = re.sub(r"/\*.*?\*/", "", (INCLUDE / "kstore" / header).read_text(), flags=re.DOTALL)
        twin = (INCLUDE / "libkstore" / header).with_suffix(".pxd").read_text()
        functions = re.findall(r"^static inline ((?:const )?\w+ \**(\w+)\([^)]*\))", c, re.MULTILINE)
        assert functions
        for signature, name in functions:
            if not PRIVATE.fullmatch(name):
                assert f"{' '.join(signature.split())}" in " ".join(twin.split()).replace("( ", "(").replace(
                    " )", ")"
                )
        for name, members in re.findall(r"^typedef struct (\w+) \{(.*?)^\}", c, re.MULTILINE | re.DOTALL):
            for member in members.replace(";", "").split("\n"):
                assert f"{member.strip()}\n" in twin or PRIVATE.fullmatch(name)
        for name in re.findall(r"^ +(KS_\w+) = ", c, re.MULTILINE):
            assert f"        {name}\n" in twin or PRIVATE.fullmatch(name)
