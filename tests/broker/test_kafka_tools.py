"""Kafka's own programs print for `kstore serve --write` what they print for a real Kafka."""

import json
import re
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

from tests.broker.node import run_kafka_program

TOOLS = "org.apache.kafka.tools."
NAMES = {
    "topics": f"{TOOLS}TopicCommand",
    "console-producer": f"{TOOLS}ConsoleProducer",
    "console-consumer": f"{TOOLS}consumer.ConsoleConsumer",
    "consumer-groups": f"{TOOLS}consumer.group.ConsumerGroupCommand",
    "get-offsets": f"{TOOLS}GetOffsetShell",
    "configs": "kafka.admin.ConfigCommand",
    "delete-records": f"{TOOLS}DeleteRecordsCommand",
    "verifiable-producer": f"{TOOLS}VerifiableProducer",
    "verifiable-consumer": f"{TOOLS}VerifiableConsumer",
}
# ids of topics, members and the node, and the options that the configuration of the test's broker gives
DIFFERS = r"TopicId: \S+|(Leader|Replicas|Isr|Elr|LastKnownElr): *\S*|watcher-\S+|127\.0\.0\.1:\d+ +\(\d\)"
OPTIONS = r",?(min\.insync\.replicas|file\.delete\.delay\.ms|max\.message\.bytes)=\d+,?"


def run(name: str, address: str, *arguments: str, given: str | None = None) -> str:
    said = run_kafka_program(NAMES[name], "--bootstrap-server", address, *arguments, given=given)
    return "\n".join(" ".join(re.sub(f"{DIFFERS}|{OPTIONS}", "", line).split()) for line in said.splitlines())


def topics(address: str) -> Any:
    return [
        run(
            "topics",
            address,
            "--create",
            "--topic",
            "tools",
            "--partitions",
            "2",
            "--config",
            "retention.ms=99",
        ),
        run("topics", address, "--describe", "--topic", "tools"),
        run("topics", address, "--alter", "--topic", "tools", "--partitions", "3"),
        run("configs", address, "--alter", "--topic", "tools", "--add-config", "retention.ms=98"),
        run("topics", address, "--describe", "--topic", "tools"),
        _refusal("topics", address, "--create", "--topic", "tools"),
        _refusal("topics", address, "--alter", "--topic", "tools", "--partitions", "2"),
        run("topics", address, "--delete", "--topic", "tools"),
        run("topics", address, "--list", "--exclude-internal").count("tools"),
    ]


def _refusal(name: str, address: str, *arguments: str) -> str:
    """The exception that ends a program."""
    try:
        return run(name, address, *arguments)
    except RuntimeError as error:
        return re.findall(r"errors\.(\w+)", str(error))[0]


def members(address: str) -> Any:
    """A group that has a member, and the records before an offset deleted under it."""
    run("topics", address, "--create", "--topic", "watched", "--partitions", "1")
    run("console-producer", address, "--topic", "watched", given="a\nb\nc\n")
    options = {"bootstrap.servers": address, "group.id": "watchers", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(options | {"client.id": "watcher"})
    consumer.subscribe(["watched"])
    assert len(consumer.consume(3, 60)) == 3
    consumer.commit(asynchronous=False)
    before = {"partitions": [{"topic": "watched", "partition": 0, "offset": 2}], "version": 1}
    group = ("--describe", "--group", "watchers")
    found = [
        run("consumer-groups", address, *group),
        run("consumer-groups", address, *group, "--members", "--verbose"),
        run("consumer-groups", address, *group, "--state"),
        _refusal("consumer-groups", address, "--delete", "--group", "watchers"),
        run("delete-records", address, "--offset-json-file", "/dev/stdin", given=json.dumps(before)),
        run("get-offsets", address, "--topic", "watched", "--time", "earliest"),
    ]
    consumer.close()
    return [*found, run("consumer-groups", address, *group, "--state")]


def groups(address: str) -> Any:
    """Records by the console to the console, and the position of its group."""
    run("topics", address, "--create", "--topic", "console", "--partitions", "1")
    lines = "".join(f"k{number}:value {number}\n" for number in range(20))
    keys = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    run("console-producer", address, "--topic", "console", *keys, given=lines)
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "print.offset=true")
    read = ("--topic", "console", "--timeout-ms", "60000", *shown)
    group = ("--group", "readers", "--command-property", "auto.offset.reset=earliest")
    reset = ("--reset-offsets", "--group", "readers", "--topic", "console", "--execute")
    return [
        run("console-consumer", address, *read, "--from-beginning", "--max-messages", "20"),
        run("console-consumer", address, *read, *group, "--max-messages", "7"),
        run("consumer-groups", address, "--describe", "--group", "readers"),
        _listed_groups(address),
        run("consumer-groups", address, *reset, "--to-offset", "15"),
        run("console-consumer", address, *read, *group, "--max-messages", "5"),
        run("consumer-groups", address, "--describe", "--group", "readers"),
        run("get-offsets", address, "--topic", "console"),
        run("get-offsets", address, "--topic", "console", "--time", "earliest"),
        run("consumer-groups", address, "--delete", "--group", "readers"),
        _listed_groups(address),
    ]


def _listed_groups(address: str) -> list[str]:
    """The names of all groups, without the number that the console makes up for one; their order is that of a
    hash table."""
    return sorted(re.sub(r"-\d+$", "", name) for name in run("consumer-groups", address, "--list").split())


def verifiable(address: str) -> Any:
    """The programs that Kafka's system tests read and write with; only what they say about records."""
    run("topics", address, "--create", "--topic", "verifiable", "--partitions", "1")
    wrote = run(
        "verifiable-producer", address, "--topic", "verifiable", "--max-messages", "500", "--acks", "-1"
    )
    read = run(
        "verifiable-consumer",
        address,
        *("--topic", "verifiable", "--group-id", "verifiers", "--max-messages", "500"),
        *("--reset-policy", "earliest"),
    )
    sent = [json.loads(line) for line in wrote.splitlines()]
    seen = [json.loads(line) for line in read.splitlines()]
    return (
        [each["value"] for each in sent if each["name"] == "producer_send_success"],
        [(each["sent"], each["acked"]) for each in sent if each["name"] == "tool_data"],
        sum(each["count"] for each in seen if each["name"] == "records_consumed"),
        max(p["maxOffset"] for e in seen if e["name"] == "records_consumed" for p in e["partitions"]),
        [e["offsets"] for e in seen if e["name"] == "offsets_committed"][-1:],
        [e["success"] for e in seen if e["name"] == "offsets_committed"][-1:],
    )


CASES: dict[str, Callable[[str], Any]] = {
    "topics": topics,
    "groups": groups,
    "members": members,
    "verifiable": verifiable,
}


@pytest.mark.parametrize("case", CASES)
def test_programs(kafka: str, served: str, case: str) -> None:
    expected = CASES[case](kafka)
    assert CASES[case](served) == expected
