"""The fingerprint of a compiled function: a digest of everything that its machine code is made from.

Machine code contains the functions that it calls, and the global names that it reads as constants, from whatever
module they come. So a cache must not be keyed by the function's own source file, as numba's is:

    a.py: LIMIT = 8        b.py: from a import LIMIT, below     c.py: from b import find
          def below(x)           def find(xs): below(…)               def count(xs): find(…)

After a change of `below` or `LIMIT` the files b.py and c.py are as before, and the old code of `find` and `count` would
be loaded: wrong answers, and nobody is told.

The fingerprint starts at a function and follows what its bytecode names: functions are followed in turn, constants
count by their value. It looks at what this process has in memory, not at files: files may change under a running
process (`git pull`), and then what is compiled is still the old code and must not be stored as the new one.

Python, numba, llvmlite, numpy and the package itself count by their version. A value of a kind that is not known here
raises `Unknown`, and the function is not cached: slow, but never wrong.

Cost: about 0.1 ms per function with its callees; once per function and signature that a process uses.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

import llvmlite
import numba
import numpy as np

from sievenet import __version__

__all__ = ["Unknown", "fingerprint"]

#: Everything with a version below: their functions and types count by name.
_VERSIONED = frozenset({"numba", "numpy", "llvmlite"}) | sys.stdlib_module_names
_VERSIONS = (sys.version, numba.__version__, llvmlite.__version__, np.__version__, __version__)
_PLAIN = (bool, int, float, complex, str, bytes, range, type(None), type(...))


class Unknown(Exception):
    """A compiled function refers to a value whose content cannot be told."""


def fingerprint(function: Any) -> str:
    """The digest of a function, plain or compiled, and of all that it refers to.

    >>> def double(x): return 2 * x
    >>> def triple(x): return 3 * x
    >>> fingerprint(double) == fingerprint(double), fingerprint(double) == fingerprint(triple)
    (True, False)
    """
    return _Walk().digest(function)


class _Walk:
    """One pass over a function and what it reaches, in an order that only their content decides."""

    def __init__(self) -> None:
        #: Functions by number; those that are still to be looked at are the last ones.
        self._functions: list[Any] = []
        self._numbers: dict[int, int] = {}

    def digest(self, root: Any) -> str:
        tokens = [repr(_VERSIONS), self._number(root)]
        for function in self._functions:  # grows meanwhile
            tokens.extend(self._content(function))
        # Lengths keep neighbours apart.
        return hashlib.sha256("".join(f"{len(token)}:{token}" for token in tokens).encode()).hexdigest()

    def _number(self, function: Any) -> str:
        """A function as a number; a second mention, or a function that calls itself, leads nowhere new."""
        number = self._numbers.setdefault(id(function), len(self._functions))
        if number == len(self._functions):
            self._functions.append(function)
        return f"function {number}"

    def _content(self, wrapped: Any) -> Iterator[str]:
        # What numba makes of a function names it in `__wrapped__`, and says how it was compiled.
        function = getattr(wrapped, "__wrapped__", wrapped)
        code = _read(function.__code__)
        yield f"{function.__module__}.{function.__qualname__}"
        yield repr(sorted(getattr(wrapped, "targetoptions", {}).items()))
        yield code.digest
        yield self._value("defaults", function.__defaults__)
        yield self._value("defaults", tuple(sorted((function.__kwdefaults__ or {}).items())))
        for name, cell in zip(code.code.co_freevars, function.__closure__ or (), strict=True):
            yield self._value(name, cell.cell_contents)
        for name in code.names:
            if name not in function.__globals__:
                continue
            value = function.__globals__[name]
            yield name
            yield self._value(name, value)
            if isinstance(value, ModuleType) and not _versioned(value.__name__):
                # `module.name`: which attribute belongs to which module is not told, so all that fit count.
                fitting = [each for each in code.names if hasattr(value, each)]
                yield from (self._value(f"{name}.{each}", getattr(value, each)) for each in fitting)

    def _value(self, name: str, value: Any) -> str:
        """A value in words that no other value has."""
        kind = type(value)
        if kind in _PLAIN:
            return f"{kind.__name__} {value!r}"
        if kind is tuple:
            return f"({','.join(self._value(name, each) for each in value)})"
        if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
            return f"{value.dtype!r} {value.shape} {value.tobytes().hex()}"
        if isinstance(value, np.dtype):
            return f"dtype {value!r}"
        if kind is ModuleType:
            return f"module {value.__name__}"
        if isinstance(getattr(value, "__wrapped__", value), FunctionType) and not _versioned(value.__module__):
            return self._number(value)
        if isinstance(value, type | FunctionType) and _versioned(value.__module__):
            return f"{value.__module__}.{value.__qualname__}"
        if isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
            defaults = tuple(getattr(value, "_field_defaults", {}).items())
            return f"{value.__module__}.{value.__qualname__} {value._fields} {self._value(name, defaults)}"
        if _versioned(kind.__module__) and " at 0x" not in (said := repr(value)) and not hasattr(value, "__len__"):
            return f"{kind.__module__}.{kind.__qualname__} {said}"
        raise Unknown(f"{name}, a {kind.__module__}.{kind.__qualname__}")


@dataclass(frozen=True, slots=True)
class _Code:
    """Bytecode: its digest, and the global names and attributes in it, sorted."""

    digest: str
    names: tuple[str, ...]
    code: CodeType


#: What bytecode says does not change. By identity, since comparing it takes long; the code is kept, so that it has one.
_known: dict[int, _Code] = {}


def _read(code: CodeType) -> _Code:
    """Look at bytecode and constants, not at places in files: a comment above a function changes nothing."""
    if id(code) not in _known:
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        constants = [_constant(each) for each in code.co_consts]
        said = repr((code.co_code, code.co_exceptiontable, shape, names, constants))
        inner = [_read(each).names for each in code.co_consts if isinstance(each, CodeType)]
        mentioned = sorted({*code.co_names}.union(*inner))
        _known[id(code)] = _Code(hashlib.sha256(said.encode()).hexdigest(), tuple(mentioned), code)
    return _known[id(code)]


def _constant(value: Any) -> str:
    """A constant of bytecode in words: 1, True and 1.0 differ, and so do 0.0 and -0.0; sets have no order."""
    if isinstance(value, CodeType):
        return _read(value).digest
    if isinstance(value, tuple | frozenset):
        inner = [_constant(each) for each in value]
        return f"{type(value).__name__} {inner if isinstance(value, tuple) else sorted(inner)}"
    return f"{type(value).__name__} {value!r}"


@functools.cache
def _versioned(module: str) -> bool:
    return module.partition(".")[0] in _VERSIONED
