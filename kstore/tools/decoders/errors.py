"""What is raised for a record that cannot be decoded."""

Texts = tuple[str | None, str | None]  # after " key: " and after " payload: ", None: nothing


class DecodeError(ValueError):
    """A record that Kafka's tool cannot decode either: it dies of it, unless it is a SkippedError.

    `reason` is the message of Kafka's exception there ("null" where it has none).
    """

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = message if reason is None else reason


class SkippedError(DecodeError):
    """A record for which Kafka's tool prints a remark and goes on.

    The remark holds the record's offset, which decoders are not told: ask `texts`.
    """

    def __init__(self, before: str, after: str, as_payload: bool = False) -> None:
        super().__init__(f"{before}?{after}")
        self._before = before
        self._after = after
        self._as_payload = as_payload

    def texts(self, offset: int) -> Texts:
        """The texts that Kafka prints in place of key and payload."""
        remark = f"{self._before}{offset}{self._after}"
        return (None, remark) if self._as_payload else (remark, None)
