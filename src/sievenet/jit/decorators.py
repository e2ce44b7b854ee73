"""The decorators for functions that numba compiles, and what their dispatchers ask instead of numba's own cache."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from numba import config, extending, njit
from numba.core import compiler, serialize

from sievenet.jit.fingerprint import Unknown, fingerprint
from sievenet.jit.store import Store, places

__all__ = ["compiled", "inlined", "intrinsic"]

log = logging.getLogger("sievenet.jit")

# numba says few types of its own, and wrong ones for what it leaves to its environment.
_config: Any = config
_compiler: Any = compiler
_extending: Any = extending
_serialize: Any = serialize
_njit: Any = njit
_Function = TypeVar("_Function", bound=Callable[..., Any])

_store = Store(places(_config.CACHE_DIR, Path(__file__).resolve().parent.parent))
#: Values that `fingerprint` does not know, each told once.
_told: set[str] = set()


def compiled(function: _Function) -> _Function:
    """Compile a function when it is first called, once per machine; it runs beside other Python threads."""
    made: _Function = _cached(_njit(nogil=True)(function))
    return made


def inlined(function: _Function) -> _Function:
    """Compile a function as a part of its callers: handing over arrays in a call costs more than a little work."""
    made: _Function = _cached(_njit(nogil=True, inline="always")(function))
    return made


def intrinsic(function: Callable[..., Any]) -> Any:
    """Call a function while its callers are compiled; it says the types, and returns what writes the instructions."""
    return _extending.intrinsic(function)


def _cached(dispatcher: Any) -> Any:
    # With NUMBA_DISABLE_JIT it is the function as it was.
    if hasattr(dispatcher, "enable_caching"):
        dispatcher._cache = _Cache(dispatcher)
    return dispatcher


class _Cache:
    """What a dispatcher of numba asks before it compiles, and tells afterwards; in place of numba's own."""

    def __init__(self, dispatcher: Any) -> None:
        self._dispatcher = dispatcher
        function = dispatcher.py_func
        self._name = f"{function.__module__}.{function.__qualname__}".replace("<", "").replace(">", "")
        self._enabled = True

    @property
    def cache_path(self) -> str:
        """The folder, for `inspect_cache…` and `stats` of dispatchers."""
        return str(_store.folder)

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The machine code for a signature, or None if it has to be compiled."""
        target.refresh()
        key = self._key(signature, target.codegen())
        payload = None if key is None else _store.load(self._name, key)
        if payload is None:
            return None
        try:
            stored, parts = _serialize.loads(payload)
            return _compiler.CompileResult._rebuild(target, *parts) if stored == signature else None
        except Exception as error:
            # Whole, and yet not to be used: whatever the reason, compiling helps.
            log.info("%s is compiled again, since what is stored cannot be loaded: %r", self._name, error)
            return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep the machine code for a signature, unless it holds addresses of this process."""
        if result.lifted or result.library.has_dynamic_globals:
            return
        key = self._key(signature, result.codegen)
        if key is not None:
            _store.save(self._name, key, _serialize.dumps((signature, result._reduce())))

    def _key(self, signature: Any, codegen: Any) -> str | None:
        """Of all that machine code depends on: what is compiled, for which arguments, for which processor."""
        if not self._enabled:
            return None
        try:
            content = fingerprint(self._dispatcher)
        except Unknown as unknown:
            text = f"{self._name} is compiled in every process: it refers to {unknown}, whose content cannot be told"
            if text not in _told:
                _told.add(text)
                log.warning(text)
            return None
        text = "\n".join((content, str(signature), repr(codegen.magic_tuple())))
        return hashlib.sha256(text.encode()).hexdigest()[:40]

    def enable(self) -> None:
        """Use the cache."""
        self._enabled = True

    def disable(self) -> None:
        """Compile whatever is stored, and store nothing."""
        self._enabled = False

    def flush(self) -> None:
        """Forget what is stored of this function."""
        _store.remove(self._name)
