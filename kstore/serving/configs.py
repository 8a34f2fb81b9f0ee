"""The configuration of topics and of the node, described and altered by clients."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kstore.config import LogConfig, in_python
from kstore.errors import InvalidConfigError
from kstore.kinds import as_text
from kstore.log.files import layout
from kstore.serving.error_codes import ErrorCode, RefusedError, attempt

if TYPE_CHECKING:
    from kstore.config import ConfigOption
    from kstore.serving.cluster import Cluster
    from kstore.serving.connection import Connection
    from kstore.serving.partitions import Partitions

_TOPIC, _BROKER = 2, 4  # types of resources
_OF_TOPIC, _OF_BROKER, _DEFAULT = 1, 4, 5  # where a value comes from
_TYPES: Final = {bool: 1, str: 2, int: 5, float: 6, tuple: 7}  # Kafka's LONG for each integer
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_OPTIONS: Final = [each for each in LogConfig.describe() if each.in_kafka and each.default is not None]


class Configs:
    """Answers requests about configurations."""

    def __init__(self, partitions: Partitions, cluster: Cluster) -> None:
        self._store = partitions.store
        self._partitions = partitions
        self._cluster = cluster

    def describe_configs(
        self, values: dict[str, Any], version: int, connection: Connection
    ) -> dict[str, Any]:
        """The options of topics and of the node, with their values and where these come from."""
        return {
            "results": [
                {
                    "resourceType": each["resourceType"],
                    "resourceName": each["resourceName"],
                    **attempt(partial(self._described, each, values["includeSynonyms"])),
                }
                for each in _once(values["resources"])
            ]
        }

    def _described(self, resource: dict[str, Any], has_synonyms: bool) -> dict[str, Any]:
        name, wanted = resource["resourceName"], resource["configurationKeys"]
        if resource["resourceType"] == _TOPIC:
            self._check_topic(name)
            description = self._store.describe(name)
            config, own = description.config, description.options
            named = {each.kafka_name: each for each in _OPTIONS if not each.name.startswith("log_")}
        elif resource["resourceType"] == _BROKER and name in ("", str(self._cluster.node_id)):
            config, own = self._store.config, {}
            named = {each.broker_names[0]: each for each in _OPTIONS if each.broker_names}
        else:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"resource {name!r} has no configuration here")
        return {
            "configs": [
                self._option(key, option, config, own, has_synonyms)
                for key, option in sorted(named.items())
                if wanted is None or key in wanted
            ]
        }

    def _option(
        self, key: str, option: ConfigOption, config: LogConfig, own: dict[str, object], has_synonyms: bool
    ) -> dict[str, Any]:
        value = getattr(config, option.name)
        source = _DEFAULT if value == option.default else _OF_BROKER
        if option.name in own:
            source = _OF_TOPIC
        text = as_text(value)
        return {
            "name": key,
            "value": text,
            "configSource": source,
            "synonyms": [{"name": key, "value": text, "source": source}] if has_synonyms else [],
            "configType": _TYPES[type(option.default)],
            "documentation": option.text,
        }

    def alter_configs(self, values: dict[str, Any], version: int, connection: Connection) -> dict[str, Any]:
        """Replace the whole configuration of topics."""

        def altered(resource: dict[str, Any], own: dict[str, str]) -> dict[str, str]:
            return {each["name"]: each["value"] for each in resource["configs"]}

        return self._alter(values, altered)

    def incremental_alter_configs(
        self, values: dict[str, Any], version: int, connection: Connection
    ) -> dict[str, Any]:
        """Change single options of topics."""

        def altered(resource: dict[str, Any], own: dict[str, str]) -> dict[str, str]:
            options = dict(own)
            for each in resource["configs"]:
                _change(options, each["name"], each["configOperation"], each["value"])
            return options

        return self._alter(values, altered)

    def _alter(self, values: dict[str, Any], altered: Any) -> dict[str, Any]:
        named = Counter(map(_key_of, values["resources"]))

        def alter(resource: dict[str, Any]) -> None:
            name = resource["resourceName"]
            if named[_key_of(resource)] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "the request names the resource twice")
            if resource["resourceType"] != _TOPIC:
                raise RefusedError(
                    ErrorCode.INVALID_REQUEST, "only the configuration of topics can be altered"
                )
            self._check_topic(name)
            own = {
                option.replace("_", "."): as_text(value)
                for option, value in self._store.describe(name).options.items()
            }
            text = altered(resource, own)
            missing = [key for key, value in text.items() if value is None]
            if missing:
                raise InvalidConfigError(f"{missing[0]} has no value", name=missing[0])
            changes: dict[str, Any] = {key.replace(".", "_"): None for key in own if key not in text}
            changes |= in_python(text)
            if not values["validateOnly"]:
                self._store.alter_topic(name, **changes)

        return {
            "responses": [
                {
                    "resourceType": each["resourceType"],
                    "resourceName": each["resourceName"],
                    **attempt(partial(alter, each)),
                }
                for each in values["resources"]
            ]
        }

    def _check_topic(self, name: str) -> None:
        if not layout.is_valid_topic(name):
            raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"no topic can have the name {name!r}")
        if name not in self._partitions.topics():
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")


def _key_of(resource: dict[str, Any]) -> tuple[int, str]:
    return resource["resourceType"], resource["resourceName"]


def _once(resources: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each resource once, with what the last mention asks of it: the work is bounded by what there is."""
    return list({_key_of(each): each for each in resources}.values())


def _change(options: dict[str, str], name: str, operation: int, value: str | None) -> None:
    """Change one option by one operation."""
    if operation == _DELETE:
        options.pop(name, None)
        return
    if value is None:
        raise InvalidConfigError(f"{name} has no value", name=name)
    if operation == _SET:
        options[name] = value
        return
    default = next((each.default for each in _OPTIONS if each.kafka_name == name), None)
    if operation not in (_APPEND, _SUBTRACT) or not isinstance(default, tuple):
        raise InvalidConfigError(f"{name} is no list of values", name=name)
    present = [each for each in options.get(name, as_text(default)).split(",") if each]
    given = value.split(",")
    kept = [each for each in present if each not in given]
    options[name] = ",".join(kept if operation == _SUBTRACT else [*kept, *given])
