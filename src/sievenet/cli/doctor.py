"""`sievenet doctor`: what this machine can run, and what to install for the rest."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click

from sievenet import programs
from sievenet.cli.output import json_option, marked, show_json

__all__ = ["Finding", "doctor", "examine"]

#: Extra → the modules that it brings, and what it is for.
EXTRAS: Final = {
    "web": (("aiohttp", "prometheus_client"), "the live page, HTTP and metrics"),
    "mqtt": (("paho.mqtt",), "the MQTT bridge"),
    "nats": (("nats", "nkeys"), "a control plane on several machines"),
    "pipeline": (("pyspark", "pyarrow", "pandas"), "the Spark pipeline"),
}
#: Port, kind, and what it is for.
PORTS: Final = ((7400, "tcp", "clients"), (7401, "udp", "events"), (7480, "tcp", "the page"))
_JAVA: Final = 17


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    ok: bool
    found: str
    #: What works with it.
    use: str
    #: What to do if it is not there; empty if there is nothing to do.
    remedy: str = ""
    #: Whether nothing works without it.
    needed: bool = False


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Say what this machine can run, and what to install.

    Looks at Python, packages, Java, Open vSwitch, the kernel's BPF, root, and ports. Exit code 2 if something is
    missing that everything needs; what only some parts need is listed with the command that installs it.

    \b
    Examples:
      $ sievenet doctor
      $ sievenet doctor --json
    """
    found = list(examine())
    if as_json:
        show_json([asdict(each) for each in found])
    else:
        width = max(len(each.name) for each in found)
        for each in found:
            click.echo(marked(f"{'✓' if each.ok else '✗'} {each.name:{width}}  {each.found}  ({each.use})"))
            if not each.ok and each.remedy:
                click.echo(f"  {'':{width}}  → {each.remedy}")
    if any(each.needed and not each.ok for each in found):
        raise click.exceptions.Exit(2)


def examine() -> Iterator[Finding]:
    """Everything that is looked at; a look that fails is a finding too."""
    for look in _LOOKS:
        try:
            yield from look()
        except Exception as error:
            yield Finding(look.__name__.strip("_"), False, f"could not be looked at: {error}", "")


def _python() -> Iterator[Finding]:
    ok = sys.version_info >= (3, 11)
    yield Finding(
        "Python", ok, platform.python_version(), "everything", "install Python 3.11 or newer: apt install python3", True
    )
    linux = sys.platform == "linux"
    yield Finding("system", linux, f"{platform.system()} {platform.release()}", "everything", "use Linux", True)


def _extras() -> Iterator[Finding]:
    for name, (modules, use) in EXTRAS.items():
        missing = [each for each in modules if not _importable(each)]
        text = f"without {', '.join(missing)}" if missing else "installed"
        yield Finding(f"extra {name}", not missing, text, use, f"pip install 'sievenet[{name}]'")


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _java() -> Iterator[Finding]:
    use, remedy = "the Spark pipeline", f"apt install {programs.table()['java'].package}"
    if programs.find("java") is None:
        yield Finding("Java", False, "not found", use, remedy)
        return
    asked = programs.command("java", "-version")
    told = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=False).stderr
    version = re.search(r'version "(\d+)', told)
    ok = version is not None and int(version[1]) >= _JAVA
    yield Finding("Java", ok, version[1] if version else "unknown version", use, f"{remedy} ({_JAVA} or newer)")


def _switches() -> Iterator[Finding]:
    missing = programs.missing("openvswitch")
    packages = " ".join(sorted({each.package for each in missing}))
    text = f"without {', '.join(each.name for each in missing)}" if missing else "installed"
    yield Finding("Open vSwitch", not missing, text, "`up --dataplane ovs`", f"apt install {packages}")


def _root() -> Iterator[Finding]:
    root = os.geteuid() == 0
    text = "yes" if root else f"no, user {os.geteuid()}"
    yield Finding("root", root, text, "`up --dataplane ovs` and `kernel`", "run as root for these")
    if root:
        namespaces = Path("/proc/self/ns/net").exists() and shutil.which("ip") is not None
        yield Finding(
            "namespaces", namespaces, "yes" if namespaces else "no", "networks on this machine", "apt install iproute2"
        )


def _bpf() -> Iterator[Finding]:
    """Whether the kernel lets us load a program: the least one there is, `return 0`."""
    use, number = "`up --dataplane kernel`", {"x86_64": 321, "aarch64": 280}.get(platform.machine())
    if number is None:
        yield Finding("BPF", False, f"not known on {platform.machine()}", use, "use x86_64 or aarch64")
        return
    code = bytes.fromhex("b7000000000000009500000000000000")
    instructions = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"GPL")
    # Type of program (a classifier of traffic), number of instructions, where they and the licence are.
    words = (ctypes.c_uint32 * 2)(3, len(code) // 8)
    attribute = bytes(words) + ctypes.addressof(instructions).to_bytes(8, "little")
    attribute += ctypes.addressof(licence).to_bytes(8, "little") + bytes(48)
    library = ctypes.CDLL(None, use_errno=True)
    handle = library.syscall(number, 5, ctypes.create_string_buffer(attribute, len(attribute)), len(attribute))
    if handle >= 0:
        os.close(handle)
        yield Finding("BPF", True, "programs can be loaded", use)
    else:
        reason = os.strerror(ctypes.get_errno())
        yield Finding("BPF", False, f"programs cannot be loaded: {reason}", use, "run as root, outside of a container")


def _ports() -> Iterator[Finding]:
    for port, kind, use in PORTS:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM) as sock:
            if kind == "tcp":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(("127.0.0.1", port))
                ok, text = True, "free"
            except OSError as error:
                ok, text = False, error.strerror or str(error)
        yield Finding(f"port {port}/{kind}", ok, text, use, "a fabric runs already, or choose another port for `up`")


_LOOKS: Final[tuple[Callable[[], Iterator[Finding]], ...]] = (_python, _extras, _java, _switches, _root, _bpf, _ports)
