"""A network of Open vSwitch on this machine: bridges, virtual links, a namespace for each host.  Needs root.

    namespace NAME-net                                             namespace NAME-h1
    ┌───────────────────────────────────────────────────┐          ┌─────────────────────────┐
    │ ovs-vswitchd, ovsdb-server (own database)         │          │ fd0f:1::1               │
    │   [s1] 1 ── s1-1 ═══ s2-1 ── 1 [s2] 2 ── s2-2 ════╪══════════╪═ eth0                   │
    │     └─ tcp:127.0.0.1:6653: the controller         │          │ to fd0e::/16: by eth0   │
    └───────────────────────────────────────────────────┘          │ from there: all is mine │
                                                                   └─────────────────────────┘

Everything lives in namespaces of its own, the switches' too: nothing collides with an Open vSwitch that the system
runs, and removing the namespaces removes the devices, whatever a crash left of them.  There may be no kernel datapath,
so bridges are of type netdev.

What makes a namespace a host is in `hosts`, and what other networks on one machine share is in `local`.

The network outlives the controller, on purpose: one that was killed finds it again (`adopt`), and traffic has not
stopped meanwhile.  A network that is not the wanted one, or half dead, is removed and built anew.
"""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Final, Literal, TypeAlias

from sievenet.dataplane import namespaces as ns
from sievenet.dataplane.local import MTU, LocalNetwork, limit
from sievenet.dataplane.openflow.buffers import enlarge
from sievenet.dataplane.openflow.effect import Rounds
from sievenet.dataplane.openflow.plane import OpenFlowDataPlane
from sievenet.dataplane.openflow.tables import Table
from sievenet.network.topology import Topology

__all__ = ["Links", "OvsNetwork"]

#: The port that OpenFlow controllers listen on.
CONTROLLER_PORT: Final = 6653
_SCHEMA: Final = "/usr/share/openvswitch/vswitch.ovsschema"
_SAFE: Final = re.compile(r"[A-Za-z0-9_.-]{1,10}")
#: Milliseconds that a switch remembers a decision that it does not need.
_MAX_IDLE: Final = 60_000
#: Decisions that it remembers.  Left to itself it begins with 10,000, allows itself more from round to round, and soon
#: forgets what is above that.
_DECISIONS: Final = 200_000
#: Milliseconds between its rounds over these decisions if no table changes.  A round takes a core, for about 10 ms
#: with 16,000 decisions; it is used to two a second.  Rounds also bring counts up to date, so that counts are this old
#: at most.
_ROUND: Final = 2_000
#: For the C library: keep freed memory.  A switch makes room for 32 of the largest packets each time that it looks at a
#: port, 0.3 MB, and would get it from the system and give it back, page by page, for every packet that comes.
_MEMORY: Final = ("MALLOC_TRIM_THRESHOLD_=67108864", "MALLOC_TOP_PAD_=4194304", "MALLOC_MMAP_THRESHOLD_=67108864")


#: How switches are joined: by virtual Ethernet, where each passes packets on to the next through the system, or by Open
#: vSwitch's own patches, where one decision carries a packet through all of them.  Patches have no bandwidth.
Links: TypeAlias = Literal["veth", "patch"]


class OvsNetwork(LocalNetwork):
    """A topology, built from bridges."""

    def __init__(
        self,
        topology: Topology,
        name: str = "sievenet",
        *,
        run_dir: str | Path | None = None,
        capacity: int | None = None,
        links: Links = "veth",
    ) -> None:
        super().__init__(topology, name, run_dir=run_dir, capacity=capacity)
        self.links = links
        #: The bridge of each switch, and which switch a datapath number is.
        self.bridges: dict[str, str] = {
            switch: switch if _SAFE.fullmatch(switch) else f"s{i}" for i, switch in enumerate(topology.switches, 1)
        }
        self.datapaths: Mapping[int, str] = dict(enumerate(topology.switches, 1))
        self._numbers = {switch: number for number, switch in self.datapaths.items()}

    # -- names -------------------------------------------------------------------------------------

    @property
    def network_namespace(self) -> str:
        """Where the switches are."""
        return f"{self.name}-net"

    def device(self, switch: str, port: int) -> str:
        """The device behind a port of a switch."""
        return f"{self.bridges[switch]}-{port}"

    def _patched(self, switch: str, port: int) -> bool:
        return self.links == "patch" and self.topology.is_switch(self.topology.ports(switch)[port])

    # -- building ----------------------------------------------------------------------------------

    def up(self) -> bool:
        """See that the network is there; whether it was there already."""
        adopted = self.prepare()
        self.connect()
        return adopted

    def prepare(self) -> bool:
        """Everything but the bridges, so that a controller can listen before they look for it."""
        self.check_rights()
        if self.adopt():
            return True
        self.down()
        try:
            self.run_dir.mkdir(parents=True, exist_ok=True)
            self._shut_doors()
            ns.add([self.network_namespace, *map(self.host_namespace, self.topology.hosts)])
            self._wire()
            self._start_database()
            self.start_switches()
        except BaseException:
            self.down()
            raise
        return False

    def connect(self) -> None:
        """Make the bridges, unless they are there."""
        if self.adopt():
            return
        try:
            self._vsctl(*self._bridge_commands(self.topology.switches))
            self.make_room()
            self._note.write_text(self._digest())
        except BaseException:
            self.down()
            raise

    def reset(self) -> None:
        """All switches disappear and come back, empty."""
        remove = [word for bridge in self.bridges.values() for word in ("--", "--if-exists", "del-br", bridge)]
        self._vsctl(*remove[1:])
        self._vsctl(*self._bridge_commands(self.topology.switches))
        self.make_room()
        self._note.write_text(self._digest())

    def adopt(self) -> bool:
        """Whether the very network that is wanted runs already."""
        try:
            if self._note.read_text() != self._digest():
                return False
        except OSError:
            return False
        return self._pid("ovs-vswitchd") is not None and self._pid("ovsdb-server") is not None

    def _digest(self) -> str:
        said = repr((self.topology.switches, self.topology.hosts, self.topology.links, self.capacity, self.links))
        return blake2b(said.encode(), digest_size=16).hexdigest()

    def _wire(self) -> None:
        lines, devices = [], []
        hosts: dict[str, str] = {}
        for link in self.topology.links:
            switch, port, peer, peer_port = link.a, link.a_port, link.b, link.b_port
            if switch in self.topology.hosts:
                switch, port, peer, peer_port = peer, peer_port, switch, port
            if self._patched(switch, port):
                continue
            near = self.device(switch, port)
            if peer in self.topology.hosts:
                far = f"{near}h"
                hosts[peer] = far
            else:
                far = self.device(peer, peer_port)
                devices.append(far)
            devices.append(near)
            lines.append(f"link add {near} mtu {MTU} type veth peer name {far} mtu {MTU}")
        lines += [f"link set {device} up" for device in devices]
        ns.ip(self.network_namespace, lines)
        ns.no_checksum_offload(self.network_namespace, [*devices, *hosts.values()])
        for host, device in hosts.items():
            self._wire_host(host, device)
        for link in self.topology.links:
            limited = link.settings.bandwidth is not None and link.a not in hosts and link.b not in hosts
            if limited and self.links == "veth":
                assert link.settings.bandwidth is not None
                for switch, port in ((link.a, link.a_port), (link.b, link.b_port)):
                    limit(self.network_namespace, self.device(switch, port), link.settings.bandwidth)

    def _wire_host(self, host: str, device: str) -> None:
        where = self.host_namespace(host)
        ns.ip(self.network_namespace, [f"link set {device} netns {where} name eth0"])
        self._make_host(host)
        ns.no_checksum_offload(where, ["eth0"])

    def _bridge_commands(self, switches: tuple[str, ...]) -> list[str]:
        """One transaction, so that a switch that connects has all of its ports."""
        commands: list[str] = []
        limit = "" if self.capacity is None else f"flow_limit={self.capacity} overflow_policy=refuse"
        for switch in switches:
            bridge = self.bridges[switch]
            tables = f"-- --id=@t{bridge} create Flow_Table name=content prefixes=ipv6_dst {limit}".split()
            commands += [*tables, "--", "add-br", bridge, "--", "set", "Bridge", bridge]
            commands += ["datapath_type=netdev", "fail_mode=secure", "protocols=OpenFlow13,OpenFlow14"]
            commands += [f"other_config:datapath-id={self._numbers[switch]:016x}"]
            numbers = (Table.CONTENT, *range(Table.FIRST, Table.LAST + 1))
            commands += [f"flow_tables:{number}=@t{bridge}" for number in numbers]
            commands += ["other_config:disable-in-band=true"]
            for port in self.topology.ports(switch):
                commands += self._port_commands(switch, port)
            commands += ["--", "set-controller", bridge, f"tcp:127.0.0.1:{CONTROLLER_PORT}"]
            commands += ["--", "set", "Controller", bridge, "max_backoff=1000", "inactivity_probe=15000"]
        return commands[1:]

    def _port_commands(self, switch: str, port: int) -> list[str]:
        device = self.device(switch, port)
        commands = ["--", "add-port", self.bridges[switch], device]
        commands += ["--", "set", "Interface", device, f"ofport_request={port}"]
        if self._patched(switch, port):
            commands += ["type=patch", f"options:peer={self.device(*self.topology.peer_port(switch, port))}"]
        return commands

    def _start_database(self) -> None:
        database = self.run_dir / "conf.db"
        ns.run("ovsdb-tool", "create", str(database), _SCHEMA)
        self._start("ovsdb-server", str(database), f"--remote=punix:{self.run_dir}/db.sock")
        ns.run("ovs-vsctl", self._db, "--no-wait", "init")
        # Decisions about events that come now and then are worth keeping: making one takes longer than the way.
        settings = (f"other_config:max-idle={_MAX_IDLE}", f"other_config:max-revalidator={_ROUND}")
        self._vsctl("--no-wait", "set", "Open_vSwitch", ".", *settings)

    def _shut_doors(self) -> None:
        """See to it that bridges do not listen at sockets of their own: a folder stands where each socket would be.

        Every bridge has two (for `ovs-ofctl`, and for whoever wants to overhear its controller), which nothing can
        switch off.  Open vSwitch asks each of them after every 32 packets whether somebody called, which took a
        fifth of its time with ten bridges.  `ofctl` opens a door for as long as it needs it.
        """
        for bridge in self.bridges.values():
            for door in ("mgmt", "snoop"):
                (self.run_dir / f"{bridge}.{door}").mkdir(exist_ok=True)

    def start_switches(self) -> None:
        """Start the switches' process; it finds its bridges in the database."""
        self._start("ovs-vswitchd", f"unix:{self.run_dir}/db.sock")

    def _start(self, program: str, *arguments: str) -> None:
        ns.run(
            *("ip", "netns", "exec", self.network_namespace, "env", f"OVS_RUNDIR={self.run_dir}", *_MEMORY),
            # As Open vSwitch's own scripts do: who forwards comes before who computes.
            *("nice", "-n", "-10", program, *arguments),
            *(f"--pidfile={self.run_dir}/{program}.pid", f"--log-file={self.run_dir}/{program}.log"),
            *("--detach", "--no-chdir", "-vconsole:off"),
        )

    @property
    def _db(self) -> str:
        return f"--db=unix:{self.run_dir}/db.sock"

    def _vsctl(self, *commands: str) -> str:
        return ns.run("ovs-vsctl", self._db, "--timeout=30", *commands)

    def make_room(self) -> None:
        """Give the switches' sockets room for bursts, and their memory of decisions room for many."""
        pid = self._pid("ovs-vswitchd")
        if pid is not None:
            enlarge(pid)
            self.control("upcall/set-flow-limit", str(_DECISIONS))

    # -- failing on purpose --------------------------------------------------------------------------

    def remove_switch(self, switch: str) -> None:
        """A switch disappears, with its table."""
        self._vsctl("del-br", self.bridges[switch])

    def restore_switch(self, switch: str) -> None:
        """It comes back, empty."""
        self._vsctl(*self._bridge_commands((switch,)))
        self.make_room()

    def set_link(self, a: str, b: str, up: bool) -> None:
        """Pull the plug of a link, or put it in again."""
        link = self.topology.link(a, b)
        switch, port = (link.a, link.a_port) if self.topology.is_switch(link.a) else (link.b, link.b_port)
        device = self.device(switch, port)
        if self._patched(switch, port):
            # A patch cannot be down, but it can be missing.
            self._vsctl(*(self._port_commands(switch, port)[1:] if up else ("--if-exists", "del-port", device)))
        else:
            ns.ip(self.network_namespace, [f"link set {device} {'up' if up else 'down'}"])

    def kill_switches(self) -> None:
        """All switches die at once, as the process that they are."""
        self._end("ovs-vswitchd", signal.SIGKILL)

    def control(self, *arguments: str) -> str:
        """Ask the switches' process (`ovs-appctl`)."""
        return ns.run("ovs-appctl", "-t", str(self.control_socket()), *arguments)

    def control_socket(self) -> Path:
        """Where the switches' process can be asked."""
        return self.run_dir / f"ovs-vswitchd.{self._pid('ovs-vswitchd')}.ctl"

    def plane(
        self,
        *,
        secret: bytes | None = None,
        grace: float = 3.0,
        audit: float = 1.0,
        generation: int | None = None,
    ) -> OpenFlowDataPlane:
        """A controller for this network; to be started on `controller_socket`."""
        return OpenFlowDataPlane(
            self.topology,
            self.datapaths,
            place=self.place,
            rounds=Rounds(self.control_socket),
            secret=secret,
            grace=grace,
            audit=audit,
            mtu=MTU,
            generation=generation,
        )

    def controller_socket(self) -> socket.socket:
        """Where the switches look for their controller; call after `prepare`."""
        return ns.listening(self.network_namespace, "127.0.0.1", CONTROLLER_PORT)

    def ofctl(self, command: str, switch: str, *arguments: str) -> str:
        """Talk OpenFlow to a switch behind the controller's back (`ovs-ofctl`)."""
        bridge = self.bridges[switch]
        door = f"unix:{self.run_dir}/{bridge}.door"
        create = ("--id=@door", "create", "Controller", f'target="p{door}"')
        entry = self._vsctl("--", *create, "--", "add", "Bridge", bridge, "controller", "@door").strip()
        try:
            return ns.run("ovs-ofctl", "-O", "OpenFlow14", command, door, *arguments)
        finally:
            self._vsctl("remove", "Bridge", bridge, "controller", entry)
