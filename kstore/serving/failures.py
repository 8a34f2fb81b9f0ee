"""Errors of the store in the answers of a coordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from kstore.errors import InvalidConfigError, KstoreError, LogClosedError, LogFailedError, LogNotFoundError
from kstore.serving.error_codes import ErrorCode

Answer: TypeAlias = dict[str, Any]
Handler: TypeAlias = Callable[[dict[str, Any], int, Any], Answer]


def whole(values: dict[str, Any], code: ErrorCode) -> Answer:
    """An answer that has one code."""
    return {"errorCode": int(code)}


def by_partition(values: dict[str, Any], code: ErrorCode) -> Answer:
    """An answer that has a code for each partition of the request."""
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    {"partitionIndex": each["partitionIndex"], "errorCode": int(code)}
                    for each in topic["partitions"]
                ],
            }
            for topic in values["topics"]
        ]
    }


def answering(handler: Handler, failed: Callable[[dict[str, Any], ErrorCode], Answer] = whole) -> Handler:
    """A handler that answers with an error code if the store fails. Clients try again after
    COORDINATOR_NOT_AVAILABLE, and report the others."""

    def answer(values: dict[str, Any], version: int, connection: Any) -> Answer:
        try:
            return handler(values, version, connection)
        except InvalidConfigError:
            return failed(values, ErrorCode.INVALID_REQUEST)
        except (OSError, LogClosedError, LogFailedError, LogNotFoundError):
            return failed(values, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        except KstoreError:
            return failed(values, ErrorCode.UNKNOWN_SERVER_ERROR)

    return answer
