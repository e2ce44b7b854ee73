"""A fingerprint changes with everything that machine code is made from, and with nothing else."""

import enum
import time
import types
from typing import NamedTuple

import numpy as np
import pytest

from sievenet.jit import compiled, inlined, intrinsic
from sievenet.jit.fingerprint import Unknown, fingerprint

CALLEE = """
from sievenet.jit import compiled, inlined, intrinsic
from numba import types

LIMIT = 8

def helper():
    return 1

@intrinsic
def raw(typingctx, x):
    def generate(context, builder, signature, args):
        return builder.add(args[0], context.get_constant(types.int64, helper()))
    return types.int64(types.int64), generate

@inlined
def near(x):
    return x + 1

@compiled
def deep(x):
    return raw(x) + near(x) + LIMIT

@compiled
def below(x):
    return deep(x) if x else 0
"""

CALLER = """
import numpy as np
from sievenet.jit import compiled

@compiled
def total(xs):
    count = 0
    for x in xs:
        count += below(x)
    return count
"""


def load(source, name, **given):
    module = types.ModuleType(name)
    vars(module).update(given)
    exec(compile(source, f"{name}.py", "exec"), vars(module))
    return module


def total(callee=CALLEE):
    return load(CALLER, "caller", below=load(callee, "callee").below).total


def test_equal_content_has_an_equal_fingerprint():
    assert fingerprint(total()) == fingerprint(total())
    assert fingerprint(total()) == fingerprint(total("# a comment, which moves every line\n\n" + CALLEE))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("LIMIT = 8", "LIMIT = 9"),  # a constant
        ("LIMIT = 8", "LIMIT = 8.0"),
        ("return x + 1", "return x + 2"),  # a function that is inlined two calls away
        ("return 1", "return 2"),  # Python code that makes machine code
        ("builder.add", "builder.sub"),
        ("if x else 0", "if x else False"),  # equal to Python, not to a compiler
        ("@inlined", "@compiled"),
    ],
)
def test_a_change_anywhere_below_changes_it(before, after):
    assert CALLEE.count(before) == 1
    assert fingerprint(total()) != fingerprint(total(CALLEE.replace(before, after)))


def using(value):
    def function():
        return value

    return function


class Pair(NamedTuple):
    a: int
    b: int = 3


VALUES = [
    *(0, False, 0.0, -0.0, None, "0", b"0", (0,), ((0,),), (0, 0), "(0,)", 1j, range(3)),
    *(np.int64(0), np.uint64(0), np.arange(3), np.arange(3, dtype=np.int32), np.zeros((3, 1)), np.zeros((1, 3))),
    *(np.int64, np.dtype("i8"), np, np.add, abs, Pair, load(CALLER, "a", below=abs), total, compiled(total)),
]


def test_values_are_told_apart():
    found = {fingerprint(using(value)) for value in VALUES}
    assert len(found) == len(VALUES)


@pytest.mark.parametrize(
    "value",
    [[1], {1: 2}, {1}, object(), Pair(1, 2), enum.Enum("E", "a"), np.array([[]], object), (1, [2])],
    ids=lambda value: type(value).__name__,
)
def test_unknown_kinds_are_refused(value):
    with pytest.raises(Unknown, match="value, a "):
        fingerprint(using(value))


def test_names_behind_a_module_count():
    source = "@compiled\ndef twice(x):\n    return 2 * other.below(x)\n"
    found = {
        fingerprint(load(source, "caller", other=load(callee, "callee"), compiled=compiled).twice)
        for callee in (CALLEE, CALLEE.replace("LIMIT = 8", "LIMIT = 9"))
    }
    assert len(found) == 2


def test_recursion_ends():
    source = (
        "@compiled\ndef even(n):\n    return n == 0 or odd(n - 1)\n\n@compiled\ndef odd(n):\n    return not even(n)"
    )
    module = load(source, "loop", compiled=compiled)
    assert fingerprint(module.even) != fingerprint(module.odd)


def test_a_fingerprint_takes_little_time():
    """It is on the way of every start: all that a matcher uses, in processor time."""
    from sievenet.matcher import blocks, construction, records, scan

    kernels = [each for module in (scan, blocks, construction, records) for each in vars(module).values()]
    kernels = [each for each in kernels if hasattr(each, "py_func")]
    assert len(kernels) > 30
    times = []
    for _ in range(5):
        began = time.process_time()
        for each in kernels:
            fingerprint(each)
        times.append(time.process_time() - began)
    assert min(times) < 0.02, f"{min(times) / len(kernels) * 1e6:.0f} us per function; expected about 50"


def test_decorators_are_exported():
    assert callable(inlined)
    assert callable(intrinsic)
