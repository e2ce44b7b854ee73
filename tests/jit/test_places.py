"""What compiled code is told of arrays has to be true: it looks at nothing else."""

import numpy as np
import pytest

from sievenet.errors import InvalidInput
from sievenet.jit.places import placed


def test_places_say_where_arrays_are_and_how_large():
    one, two = np.arange(5), np.zeros((3, 4), np.uint8)
    assert placed((one, two), ("<i8", "|u1")).tolist() == [[one.ctypes.data, 5, 0], [two.ctypes.data, 3, 4]]


@pytest.mark.parametrize(
    "array", [np.zeros(4, np.int32), np.zeros((4, 4), np.int64)[:, 1], np.zeros((4, 4), np.int64).T[:2]]
)
def test_what_is_something_else_is_refused(array):
    with pytest.raises(InvalidInput):
        placed((np.zeros(4, np.int64), array), ("<i8", "<i8"))


def test_each_array_has_a_kind():
    with pytest.raises(InvalidInput):
        placed((np.zeros(4, np.int64),), ("<i8", "<i8"))
