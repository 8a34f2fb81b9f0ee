import pytest

from tests.conformance.writing import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()
