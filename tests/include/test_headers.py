"""The public headers alone: which compilers take them, and what test_headers.c finds."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import kstore
from tests.conformance.test_format_vectors import V0, V1, A, B, C, D
from tests.helpers.effort import EFFORT, SEED

INCLUDE = Path(kstore.get_include())
HEADERS = sorted(path.name for path in (INCLUDE / "kstore").glob("*.h"))
SOURCE = Path(__file__).with_name("test_headers.c")
USES = {"lz4.h": "(uint32_t)ks_unlz4(0, 0, 0, 0)", "snappy.h": "(uint32_t)ks_unsnap(0, 0, 0, 0)"}
EXAMPLES = {"BATCH_A": A, "BATCH_B": B, "BATCH_C": C, "BATCH_D": D, "MESSAGE_0": V0, "MESSAGE_1": V1}
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wcast-align", "-Werror", f"-I{INCLUDE}"]
CONVERSION = ["-Wconversion", "-Wsign-conversion"]
SANITIZE = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
C99 = ["-std=c99", "-Wstrict-prototypes"]
CXX11 = ["-x", "c++", "-std=c++11"]
CC = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
CXX = next((name for name in ("c++", "g++", "clang++") if shutil.which(name)), None)
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
pytestmark = pytest.mark.skipif(CC is None or CXX is None, reason="no compiler of C and C++")


def run(*command: str | Path) -> str:
    """The standard output of a command that must succeed. A preloaded sanitizer is not for it."""
    env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    env |= {"EFFORT": str(EFFORT), "SEED": str(SEED)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, f"{command} with SEED={SEED}\n{done.stdout}{done.stderr}"
    assert done.stderr == ""
    return done.stdout


def check_each_alone(compiler: list[str], scratch: Path) -> None:
    """Each header compiles first in a file, and twice in one; files that include them link together."""
    objects = []
    for header in HEADERS:
        source, target = scratch / f"{header}.c", scratch / f"{header}.o"
        function = f"uint32_t unit_{header[:-2]}(void)"
        source.write_text(
            f'#include "kstore/{header}"\n#include "kstore/{header}"\n'
            f"{function};\n{function} {{ return {USES.get(header, 'ks_crc32c(0, 0, 0)')}; }}\n"
        )
        run(*compiler, *STRICT, *CONVERSION, "-c", source, "-o", target)
        objects.append(target)
    program = scratch / "main.c"
    program.write_text("int main(void) { return 0; }\n")
    run(*compiler, program, "-x", "none", *objects, "-o", scratch / "linked")
    run(scratch / "linked")


def check_program(compiler: list[str], scratch: Path) -> None:
    """The test program compiles without a warning, and all of its groups pass."""
    (scratch / "examples.h").write_text(
        "".join(
            f"static const uint8_t {name}[] = {{{', '.join(map(hex, data))}}};\n"
            for name, data in EXAMPLES.items()
        )
    )
    run(*compiler, *STRICT, f"-I{scratch}", SOURCE, "-o", scratch / "program")
    groups = re.findall(r"RUN\((\w+)\);", SOURCE.read_text())
    assert re.findall(r"^(\w+):.* ok$", run(scratch / "program"), re.MULTILINE) == groups


def test_each_header_alone(tmp_path: Path) -> None:
    check_each_alone([str(CC), *C99, "-O0"], tmp_path)


def test_all_headers_in_cxx(tmp_path: Path) -> None:
    """Nightly each by itself, with each compiler that is there."""
    source = tmp_path / "all.c"
    source.write_text("".join(f'#include "kstore/{header}"\n' for header in HEADERS))
    run(str(CXX), *CXX11, *STRICT, *CONVERSION, "-fsyntax-only", source)


def test_program(tmp_path: Path) -> None:
    check_program([str(CC), *C99, *CONVERSION, "-O1"], tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("compiler", COMPILERS)
def test_each_compiler(compiler: list[str], tmp_path: Path) -> None:
    """C++ has other rules for enums, casts and void pointers; the program must mean the same."""
    check_each_alone([*compiler, "-O3"], tmp_path)
    check_program([*compiler, "-O2"], tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("macros", [[], ["-DKS_NO_ASM"]], ids=["", "without_assembler"])
def test_under_sanitizers(macros: list[str], tmp_path: Path) -> None:
    """Also without assembler, as processors other than x86 run it."""
    check_program([str(CC), *C99, *CONVERSION, *SANITIZE, *macros], tmp_path)


# what the .pxd files leave out: the parts that the public functions are made of
PRIVATE = re.compile(
    r"ks_read_bytes|ks_short_varint|ks_take_numbers|ks_crc32c_(?!portable)\w+|ks_crc_\w+"
    r"|(?i:ks_(snappy|lz4)_\w+)"
)


def test_twins_declare_what_the_headers_do() -> None:
    """Every function, constant and struct member of a header is in its .pxd, spelt the same."""
    for header in HEADERS:
        c = re.sub(r"/\*.*?\*/", "", (INCLUDE / "kstore" / header).read_text(), flags=re.DOTALL)
        twin = (INCLUDE / "libkstore" / header).with_suffix(".pxd").read_text()
        in_one_line = " ".join(twin.split()).replace("( ", "(").replace(" )", ")")
        functions = re.findall(r"^static inline ((?:const )?\w+ \**(\w+)\([^)]*\))", c, re.MULTILINE)
        assert functions
        for signature, name in functions:
            assert " ".join(signature.split()) in in_one_line or PRIVATE.fullmatch(name)
        for name, members in re.findall(r"^typedef struct (\w+) \{(.*?)^\}", c, re.MULTILINE | re.DOTALL):
            for member in members.replace(";", "").split("\n"):
                assert f"{member.strip()}\n" in twin or PRIVATE.fullmatch(name)
        for name in re.findall(r"^ +(KS_\w+) = ", c, re.MULTILINE):
            assert f"        {name}\n" in twin or PRIVATE.fullmatch(name)
