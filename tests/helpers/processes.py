"""Other processes that a test starts."""

import os
from pathlib import Path

import kstore


def environment(**more: str) -> dict[str, str]:
    """This process's, in which Python finds the kstore that is tested, and then the package of the tests."""
    paths = (Path(kstore.__file__).parents[1], Path(__file__).parents[2])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), **more}
