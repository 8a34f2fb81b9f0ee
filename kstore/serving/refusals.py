"""Requests that are refused, and errors as fields of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kstore.errors import KstoreError
from kstore.serving.error_codes import ErrorCode, code_of

if TYPE_CHECKING:
    from collections.abc import Callable


class RefusedError(Exception):
    """What a request asks for is refused: a code and a reason."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def attempt(action: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
    """The fields that an action returns, with its error code and message."""
    try:
        return {"errorCode": ErrorCode.NONE, "errorMessage": None, **(action() or {})}
    except RefusedError as error:
        return {"errorCode": error.code, "errorMessage": str(error)}
    except (KstoreError, OSError) as error:
        return {"errorCode": code_of(error), "errorMessage": str(error)}
