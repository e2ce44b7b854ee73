"""What networks on this machine have in common, whoever forwards: a name, hosts in namespaces, and how they end.

    namespace NAME-h1, …              hosts, each with an address of its own behind `eth0` (`hosts`)
    namespace NAME-net or NAME.s1, …  the switches: all together (`openflow.ovs`), or each (`kernel.network`)
    RUN_DIR                           what the switches' makers keep: process numbers, pins, which network it is

A network outlives its daemon on purpose, and the next daemon of that name takes it over or removes it.  Two daemons at
a time would take it from each other, so a daemon `claim`s the name first.  Names have no `-` and no `.`, which end
them in the names of namespaces: removing network `a` leaves network `a-b` alone because there cannot be one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from sievenet.dataplane import namespaces as ns
from sievenet.dataplane.hosts import host_commands
from sievenet.dataplane.kernel import bpf
from sievenet.errors import InvalidInput, Unavailable
from sievenet.network.topology import Topology

__all__ = ["MTU", "RUN", "LocalNetwork", "address_of", "limit"]

#: Bytes of the largest packet: jumbo frames, since an event is not cut into pieces.
MTU: Final = 9000
#: Where networks keep their folders, and the locks of their names.
RUN: Final = Path("/run/sievenet")
_NAME: Final = re.compile(r"[A-Za-z0-9_]{1,10}")
#: Programs that a network may have left running.
_PROGRAMS: Final = ("ovs-vswitchd", "ovsdb-server")
_WAIT: Final = 10.0


def address_of(topology: Topology, host: str) -> str:
    """The address of a host, where the topology says which hosts there are: fd0f:1::N for the Nth."""
    return f"fd0f:1::{topology.hosts.index(host) + 1:x}"


def limit(namespace: str | None, device: str, bandwidth: float) -> None:
    """Let a device send no more than this, in bits per second."""
    burst = str(max(2 * MTU, int(bandwidth / 8 / 100)))
    where = () if namespace is None else ("-n", namespace)
    ns.run(
        *("tc", *where, "qdisc", "replace", "dev", device, "root"),
        *("tbf", "rate", f"{int(bandwidth)}bit", "burst", burst, "latency", "50ms"),
    )


class LocalNetwork:
    """A topology on this machine: its names, its hosts, and its end."""

    def __init__(
        self,
        topology: Topology,
        name: str = "sievenet",
        *,
        run_dir: str | Path | None = None,
        capacity: int | None = None,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise InvalidInput(expected="a name of 1 to 10 letters, digits and _", got=name, where="network")
        self.topology = topology
        self.name = name
        #: Flows that fit a switch; None for as many as it takes.
        self.capacity = capacity
        self.run_dir = Path(run_dir) if run_dir is not None else RUN / name
        #: Where programs and tables of the kernel are pinned, and which network this is.
        self._pins = self.run_dir / "bpf"
        self._note = self.run_dir / "network"

    @staticmethod
    def check_rights() -> None:
        """`Unavailable` unless this process may make networks."""
        lacking = ns.lacking()
        if lacking is not None:
            raise Unavailable(
                f"Expected root, since this makes network namespaces and devices; got {lacking}. "
                "Use --dataplane embedded, which needs nothing"
            )

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Nobody else uses this name meanwhile; `Unavailable` if somebody does already."""
        self.check_rights()
        RUN.mkdir(parents=True, exist_ok=True)
        with (RUN / f"{self.name}.lock").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                raise Unavailable(
                    f"Network {self.name} belongs to a daemon that runs (process {lock.read().strip() or 'unknown'}); "
                    "end it, or choose another --name"
                ) from None
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    # -- hosts -------------------------------------------------------------------------------------

    def host_namespace(self, host: str) -> str:
        """Where a host is."""
        if host not in self.topology.hosts:
            raise InvalidInput(expected="a host", got=host, where="network")
        return f"{self.name}-{host}"

    def host_address(self, host: str) -> str:
        """A host's own address."""
        return address_of(self.topology, host)

    def place(self, host: str) -> tuple[str, str]:
        """Where a host's clients open their sockets: address and namespace."""
        return self.host_address(host), self.host_namespace(host)

    def _make_host(self, host: str) -> None:
        """Its `eth0` is there; let it take part."""
        ns.ip(self.host_namespace(host), host_commands("eth0", self.host_address(host)))

    # -- the end -----------------------------------------------------------------------------------

    def down(self) -> None:
        """Remove everything of this name, whoever made it and whatever state it is in."""
        for program in _PROGRAMS:
            self._end(program, signal.SIGTERM)
        left = [*ns.listing(f"{self.name}-"), *ns.listing(f"{self.name}.")]
        if left:
            ns.delete(left)
        bpf.unmount(str(self._pins))
        shutil.rmtree(self.run_dir, ignore_errors=True)

    def _pid(self, program: str) -> int | None:
        """The process of a program of ours, if it lives and is that program."""
        try:
            pid = int((self.run_dir / f"{program}.pid").read_text())
            name = Path(f"/proc/{pid}/comm").read_text().strip()
        except (OSError, ValueError):
            return None
        return pid if name == program[:15] else None

    def _end(self, program: str, number: int) -> None:
        pid = self._pid(program)
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        if not _until(lambda: self._pid(program) is None):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            _until(lambda: self._pid(program) is None)


def _until(done: Callable[[], bool], wait: float = _WAIT) -> bool:
    deadline = time.monotonic() + wait
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
