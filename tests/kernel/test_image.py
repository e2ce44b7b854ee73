"""The shipped program and its source."""

import subprocess
from hashlib import blake2b
from pathlib import Path

import pytest

from sievenet import programs
from sievenet.dataplane.kernel import image
from sievenet.errors import InvalidInput

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = Path(image.__file__).parent


def test_the_object_is_made_from_the_source():
    """The build writes a digest of the source into the object."""
    digest = blake2b((FOLDER / "sieve.c").read_bytes(), digest_size=16).hexdigest()
    assert digest.encode() in (FOLDER / "sieve.o").read_bytes(), "run scripts/build-kernel-switch"


def test_building_again_gives_the_same(tmp_path):
    if programs.find("clang") is None:
        pytest.skip("clang is not installed")
    version = subprocess.run(programs.command("clang", "--version"), check=True, capture_output=True, text=True).stdout
    build = programs.command("sh", str(ROOT / "scripts" / "build-kernel-switch"), str(tmp_path / "sieve.o"))
    subprocess.run(build, check=True, timeout=60)
    built, shipped = image.read_image((tmp_path / "sieve.o").read_bytes()), image.shipped()
    # Another compiler may order instructions differently.
    assert built == shipped or (" 14." not in version and type(built) is type(shipped))


def test_what_is_no_object_is_refused():
    for data in (b"", b"\x7fELF", bytes(200), (FOLDER / "sieve.o").read_bytes()[:900]):
        with pytest.raises(InvalidInput, match="object file for BPF"):
            image.read_image(data)
