"""Errors as HTTP says them: a status, and the same facts as the exception as JSON."""

from __future__ import annotations

import math
from typing import Any

from sievenet.errors import Dropped, InvalidInput, Rejected, SchemaError, SievenetError, Unavailable, shortened

__all__ = ["BrokenBody", "OverQuota", "TooLarge", "TooSlow", "Unknown", "facts", "headers_of", "status_of"]


class Unknown(Rejected):
    """Who is asking has to be known, and is not."""


class OverQuota(Rejected):
    """More was to be published than a quota has room for; so many seconds later there is."""

    def __init__(self, message: str, wait: float) -> None:
        super().__init__(message)
        self.wait = wait


class TooLarge(SievenetError):
    """A request has more bytes than one may have."""


class TooSlow(SievenetError):
    """The body of a request does not come."""


class BrokenBody(InvalidInput):
    """The body of a request is not what its head says."""


def status_of(error: SievenetError) -> int:
    """The status of an answer that is an error.

    >>> status_of(Rejected("no")), status_of(Unavailable("not now")), status_of(InvalidInput("what?"))
    (403, 503, 400)
    >>> status_of(Dropped("5 events were dropped", count=5, quota=True))
    429
    """
    match error:
        case Unknown():
            return 401
        case TooLarge():
            return 413
        case TooSlow():
            return 408
        case SchemaError():
            return 404
        case InvalidInput():
            return 400
        case Rejected():
            # Whoever asks too much is told to wait, not to go away.
            over = "(quota)" in str(error) or (isinstance(error, Dropped) and error.quota)
            return 429 if over else 403
        case Unavailable():
            return 503
    return 500


def headers_of(error: SievenetError) -> dict[str, str] | None:
    """What the head of such an answer says."""
    match status_of(error):
        case 401:
            return {"WWW-Authenticate": "Bearer"}
        case 429:
            return {"Retry-After": str(max(1, math.ceil(error.wait)) if isinstance(error, OverQuota) else 1)}
    return None


def facts(error: SievenetError) -> dict[str, Any]:
    """What an answer says about an error."""
    kind = "Rejected" if isinstance(error, Unknown | Dropped | OverQuota) else type(error).__name__
    found: dict[str, Any] = {"kind": kind, "message": str(error)}
    if isinstance(error, InvalidInput):
        for name in ("expected", "where"):
            if value := getattr(error, name):
                found[name] = value
        if error.got is not None:
            found["got"] = shortened(error.got)
    return {"error": found}
