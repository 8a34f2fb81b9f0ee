"""Each client does with `kstore serve --write` what it does with a real Kafka: the same records, offsets and
errors, case by case."""

import functools
import re
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from tests.broker.matrix import java, kcat
from tests.broker.matrix.cases import CASES
from tests.broker.matrix.client import Client
from tests.kafka.jvm import KafkaMissingError


def _aiokafka(address: str) -> Client:
    from tests.broker.matrix.aio import Aiokafka

    return Aiokafka(address)


def _confluent(address: str) -> Client:
    from tests.broker.matrix.librdkafka import Librdkafka

    return Librdkafka(address)


def _kafka_python(address: str) -> Client:
    from tests.broker.matrix.pure_python import KafkaPython

    return KafkaPython(address)


CLIENTS: dict[str, Callable[[str], Client]] = {
    "aiokafka": _aiokafka,
    "confluent-kafka": _confluent,
    "kafka-python": _kafka_python,
    f"Java {java.OLD}": functools.partial(java.Java, java.OLD),
    f"Java {java.NEW}": functools.partial(java.Java, java.NEW),
}
# what a client cannot do, and why
NOT_APPLICABLE = {
    ("aiokafka", "static member fenced"): "it joins again for ever",
    ("kafka-python", "static member fenced"): "a poll does not report it",
}
# without its codecs, kafka-python leaves sockets of producers that it cannot make
MODULES = {
    "aiokafka": ("aiokafka",),
    "confluent-kafka": ("confluent_kafka",),
    "kafka-python": ("kafka", "snappy"),
}


@pytest.fixture(scope="module", params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    """The name of a client that this machine has."""
    name: str = request.param
    for module in MODULES.get(name, ()):
        if find_spec(module) is None:
            pytest.skip(f"{name} needs {module}, which is not here")
    return name


@pytest.fixture(scope="module")
def both(client: str, kafka: str, served: str) -> Iterator[tuple[Client, Client]]:
    """One client of a broker, one of kstore."""
    try:
        clients = CLIENTS[client](kafka), CLIENTS[client](served)
    except KafkaMissingError as e:
        pytest.skip(f"{client}: {e}")
    yield clients
    for each in clients:
        each.close()


def _name(client: str, case: str) -> str:
    """A name for topics and groups that no other test has."""
    return re.sub(r"\W+", "-", f"{client} {case}")


def _plain(found: Any) -> Any:
    """Tuples as lists, so that results of Python and of Java compare."""
    return [_plain(each) for each in found] if isinstance(found, list | tuple) else found


@pytest.mark.parametrize("case", CASES)
def test_a_client(client: str, both: tuple[Client, Client], case: str) -> None:
    if why := NOT_APPLICABLE.get((client, case)):
        pytest.skip(f"{client}: {why}")
    of_kafka, of_kstore = both
    expected = CASES[case](of_kafka, _name(client, case))
    assert _plain(CASES[case](of_kstore, _name(client, case))) == _plain(expected)


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not here: apt-get install kcat")
@pytest.mark.parametrize("case", kcat.CASES)
def test_kcat(kafka: str, served: str, case: str) -> None:
    expected = kcat.CASES[case](kafka, _name("kcat", case))
    assert "exit code" not in str(expected[:1])
    assert kcat.CASES[case](served, _name("kcat", case)) == expected
