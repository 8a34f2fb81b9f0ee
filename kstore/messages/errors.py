"""Errors for messages that cannot be decoded or encoded."""

Texts = tuple[str | None, str | None]  # after " key: " and after " payload: "; None: not printed


class EncodeError(ValueError):
    """A value that its field cannot have."""


class DecodeError(ValueError):
    """A record that Kafka's tool cannot decode. The tool ends there, unless this is a SkippedError.

    `reason`: the message of Kafka's exception, "null" if it has none.
    """

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = message if reason is None else reason


class SkippedError(DecodeError):
    """A record that Kafka's tool skips with a remark. The remark contains the offset of the record, which
    decoders do not know: `texts` adds it."""

    def __init__(self, before: str, after: str, as_payload: bool = False) -> None:
        super().__init__(f"{before}?{after}")
        self._before = before
        self._after = after
        self._as_payload = as_payload

    def texts(self, offset: int) -> Texts:
        """The texts that Kafka prints instead of key and payload."""
        remark = f"{self._before}{offset}{self._after}"
        return (None, remark) if self._as_payload else (remark, None)
