"""Compiled code: the decorators for functions that numba compiles, and the cache of what came out.

`@compiled` is for functions that Python or other compiled functions call, `@inlined` for small ones that are called
in inner loops and become part of their callers, `@intrinsic` for functions that write machine instructions themselves.
Coverage leaves out what they decorate. All compiled code of the package uses these and nothing of numba's own, since
numba's cache would load machine code that is out of date (see `fingerprint`).

Who asks for one of them loads numba, which takes a while: import modules with compiled code where they are used. What
is to be loaded beforehand, and whether it is there, says a `warmup.Warmup`, which loads nothing by itself.

Imports only `errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sievenet.jit.decorators import compiled, inlined, intrinsic

__all__ = ["compiled", "inlined", "intrinsic"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from sievenet.jit import decorators

        return getattr(decorators, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
