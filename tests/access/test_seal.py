"""Sealed datagrams: what was altered, forged, replayed or is too old is not opened, and nobody else reads them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sievenet.access.seal import CLEAR, SEAL, WINDOW, Opener, Sealer, new_key
from tests.seeds import seeds


def pair(key=None):
    key = key or new_key()
    return Sealer(key, down=False), Opener(key, down=False)


def seal(sealer, datagram):
    return sealer.seal(datagram[:CLEAR], memoryview(datagram)[CLEAR:])


def opened(opener, data):
    """The whole datagram."""
    packets = opener.open(memoryview(data))
    return None if packets is None else bytes(data[: min(CLEAR, len(data) - SEAL)]) + packets


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_what_is_sealed_opens_once(datagrams):
    sealer, opener = pair()
    for each in datagrams:
        sealed = seal(sealer, each)
        assert len(sealed) == len(each) + SEAL
        assert opened(opener, sealed) == each
        assert opened(opener, sealed) is None
    assert (opener.forged, opener.replayed) == (0, len(datagrams))


def test_every_flipped_bit_and_every_cut_is_noticed():
    sealer, opener = pair()
    sealed = seal(sealer, b"price=421")
    for at in range(8 * len(sealed)):
        bad = bytearray(sealed)
        bad[at // 8] ^= 1 << at % 8
        assert opened(opener, bad) is None
    for end in range(len(sealed)):
        assert opened(opener, sealed[:end]) is None
    assert opened(opener, sealed) == b"price=421"


def test_the_other_direction_and_other_sessions_do_not_verify():
    key = new_key()
    up = Sealer(key, down=False)
    assert opened(Opener(key, down=True), seal(up, b"x")) is None
    assert opened(Opener(new_key(), down=False), seal(up, b"x")) is None


@pytest.mark.parametrize("seed", seeds(2))
def test_the_window_is_that_of_a_list(seed):
    """Against the plain definition: each number once, none that is a window or more behind."""
    rng = random.Random(seed)
    sealer, opener = pair()
    sealed = [seal(sealer, b"%d" % n) for n in range(6000)]
    seen, highest = set(), -1
    at = 0
    for _ in range(3000):
        at = max(0, min(5999, at + rng.choice((1, 1, 1, 2, -1, -3, 40, -40, 900, -WINDOW, 1 - WINDOW))))
        expected = at not in seen and at > highest - WINDOW
        assert (opened(opener, sealed[at]) is not None) == expected
        if expected:
            seen.add(at)
            highest = max(highest, at)


def test_forged_numbers_do_not_move_the_window():
    sealer, opener = pair()
    first = seal(sealer, b"a")
    forged = bytearray(first)
    forged[-8:] = (1 << 60).to_bytes(8, "big")
    assert opened(opener, forged) is None
    assert opened(opener, first) == b"a"


def test_only_the_header_can_be_read():
    sealer, opener = pair()
    datagram = bytes(range(CLEAR)) + b"price=421" * 20
    sealed = seal(sealer, datagram)
    assert sealed[:CLEAR] == datagram[:CLEAR]
    assert b"price" not in sealed
    assert opened(opener, sealed) == datagram


def test_a_key_that_is_used_again_gives_no_nonce_twice():
    key = new_key()
    nonces = {seal(Sealer(key, down=False), b"x")[-12:] for _ in range(8)}
    assert len(nonces) == 8
