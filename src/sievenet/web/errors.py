"""Errors as HTTP says them: a status, and the same facts as the exception as JSON."""

from __future__ import annotations

from typing import Any

from sievenet.errors import Dropped, InvalidInput, Rejected, SchemaError, SievenetError, Unavailable, shortened

__all__ = ["TooLarge", "Unknown", "facts", "status_of"]


class Unknown(Rejected):
    """Who is asking has to be known, and is not."""


class TooLarge(SievenetError):
    """A request has more bytes than one may have."""


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


def facts(error: SievenetError) -> dict[str, Any]:
    """What an answer says about an error."""
    kind = "Rejected" if isinstance(error, Unknown | Dropped) else type(error).__name__
    found: dict[str, Any] = {"kind": kind, "message": str(error)}
    if isinstance(error, InvalidInput):
        for name in ("expected", "where"):
            if value := getattr(error, name):
                found[name] = value
        if error.got is not None:
            found["got"] = shortened(error.got)
    return {"error": found}
