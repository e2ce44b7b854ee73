"""The one exception tree.

    SievenetError
    ├── InvalidInput (also ValueError)    what was given is wrong: expected, got, where
    │   ├── SchemaError                   a schema that contradicts itself, or an unknown one
    │   ├── EventError                    a value missing, of another type or outside its domain
    │   ├── FilterError                   a constraint that does not fit its attribute
    │   │   └── ParseError                text that is not a filter or event; knows the column
    │   ├── CodecError                    bytes that are not what they claim to be
    │   └── PlanError                     an index plan that contradicts itself or its schema
    ├── Rejected                          a well-formed request that cannot be granted now
    │   └── Dropped                       events that were published before were dropped by the network
    └── Unavailable                       the other side is not there, or did not answer in time
        └── Fenced                        somebody else has taken over what we were doing

Every message says what was expected, what came, and where; the same facts are
attributes of the exception, so that programs need not parse sentences.
"""

from __future__ import annotations

__all__ = [
    "CodecError",
    "Dropped",
    "EventError",
    "Fenced",
    "FilterError",
    "InvalidInput",
    "ParseError",
    "PlanError",
    "Rejected",
    "SchemaError",
    "SievenetError",
    "Unavailable",
]


class SievenetError(Exception):
    """Anything that Sievenet itself reports."""


class InvalidInput(SievenetError, ValueError):
    """What was given is wrong.

    >>> print(InvalidInput(expected="int in [0, 9]", got=12, where="stock.price"))
    Expected int in [0, 9], got 12 - at stock.price
    """

    def __init__(self, message: str | None = None, *, expected: str = "", got: object = None, where: str = "") -> None:
        self.expected = expected
        self.got = got
        self.where = where
        if message is None:
            message = f"Expected {expected}, got {shortened(got)}"
        super().__init__(f"{message} - at {where}" if where else message)


class SchemaError(InvalidInput):
    """A schema that contradicts itself, or that nobody knows."""


class EventError(InvalidInput):
    """An event that its schema does not allow."""


class FilterError(InvalidInput):
    """A constraint that does not fit its attribute."""


class ParseError(FilterError):
    """Text that is not a filter or event.  Shows the text with a caret under the column.

    ``column`` counts characters from 0; what is shown counts from 1.
    """

    def __init__(self, text: str, column: int, *, expected: str, got: str, hint: str = "") -> None:
        first = max(0, column - 60)
        shown = "".join(c if c.isprintable() else " " for c in text[first : column + 60])
        message = f"Expected {expected}, got {got}" + (f"; {hint}" if hint else "")
        super().__init__(
            f"{message} - at column {column + 1}\n  {shown}\n  {' ' * (column - first)}^",
            expected=expected,
            got=got,
        )
        self.text = text
        self.column = column
        self.hint = hint
        self.where = f"column {column + 1}"

    def __reduce__(self) -> tuple[object, ...]:
        return _parse_error, (self.text, self.column, self.expected, self.got, self.hint)


def _parse_error(text: str, column: int, expected: str, got: str, hint: str) -> ParseError:
    return ParseError(text, column, expected=expected, got=got, hint=hint)


class CodecError(InvalidInput):
    """Bytes that are not what they claim to be."""


class PlanError(InvalidInput):
    """An index plan that contradicts itself or its schema."""


class Rejected(SievenetError):
    """A well-formed request that cannot be granted."""


class Dropped(Rejected):
    """Events that were published before were dropped by the network.

    A call of `publish` that raises this has sent nothing; `publish_many` may have sent the first events of its batch.
    """

    def __init__(self, message: str = "", *, count: int = 0, quota: bool = False) -> None:
        super().__init__(message)
        #: How many, as far as that is known; and whether a quota is why.
        self.count, self.quota = count, quota


class Unavailable(SievenetError):
    """The other side is not there, or did not answer in time."""


class Fenced(Unavailable):
    """Somebody else has taken over what we were doing; nothing of it counts any more."""


class Shown(str):
    """Text that shows a value already, as it came from another process.

    >>> print(shortened(Shown("'IBM'")), shortened("'IBM'"))
    'IBM' "'IBM'"
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def shortened(value: object, limit: int = 60) -> str:
    """``repr`` of a value from outside, cut so that an error cannot flood a log."""
    text = value if isinstance(value, str) and value.startswith("`") else repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
