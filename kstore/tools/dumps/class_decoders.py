"""The decoders for --key-decoder-class and --value-decoder-class: those of Kafka's tools."""

from collections.abc import Callable

from kstore.engine.record.text import java_text

ClassDecoder = Callable[[bytes], str]
_PACKAGE = "org.apache.kafka.tools.api."
STRING = "StringDecoder"  # the default for keys and values


def _integer(size: int) -> ClassDecoder:
    def decode(data: bytes) -> str:
        if len(data) < size:
            raise ValueError(f"an integer of {size} bytes cannot be read from {len(data)}")
        return str(int.from_bytes(data[:size], "big", signed=True))  # Kafka ignores further bytes

    return decode


CLASS_DECODERS: dict[str, ClassDecoder] = {
    STRING: java_text,
    "DefaultDecoder": java_text,  # Kafka prints the type and hash of a Java array
    "IntegerDecoder": _integer(4),
    "LongDecoder": _integer(8),
}


def class_decoder(name: str) -> ClassDecoder:
    """The decoder of a Java class, with its package or without. ValueError."""
    found = CLASS_DECODERS.get(name.removeprefix(_PACKAGE))
    if found is None:
        raise ValueError(f"no decoder {name}: the decoder classes are {', '.join(CLASS_DECODERS)}")
    return found
