"""The command line in this process, as the tests of tools run it."""

from tests.tools.conftest import run

__all__ = ["run"]
