"""The daemon's configuration: one typed, frozen value.

It comes from defaults, then a TOML file if there is one, then the command line. Unknown keys are errors: a misspelt
setting that is silently ignored is worse than none.

    # sievenet.toml
    topology = "fattree,k=4"
    state = "/var/lib/sievenet"

    [listen]
    port = 7400

    [control]
    lease = 30.0

    [links]
    delay = 0.001
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from sievenet.control.config import ControlConfig
from sievenet.errors import InvalidInput
from sievenet.network.link import LinkSettings

__all__ = [
    "AccessConfig",
    "Config",
    "DataConfig",
    "HybridConfig",
    "ListenConfig",
    "LogConfig",
    "NatsConfig",
    "OpenFlowConfig",
    "RunConfig",
    "TuningConfig",
    "WebConfig",
    "load_config",
]

Port = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class _Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all sections."""


class ListenConfig(_Settings, frozen=True):
    """The control port, and what one connection may do."""

    #: Address to listen on; anything but loopback needs `access.folder`.
    host: str = "127.0.0.1"
    #: TCP port; 0 takes a free one.
    port: Port = 7400
    #: Seconds that a new connection has to say hello.
    hello: Seconds = 5.0
    #: Seconds between a client's heartbeats, each with a report of what it saw; a third of the lease at most.
    heartbeat: Seconds = 1.0
    #: Bytes of the largest request.
    max_request: Positive = 1 << 20
    #: Connections at the same time.
    max_clients: Positive = 4096
    #: Requests of one connection that are being worked on at the same time; further ones wait in its socket.
    max_open: Positive = 256
    #: Bytes of requests of one connection that are being worked on or wait; further ones wait in its socket.
    max_held: Positive = 4 << 20
    #: Seconds in which a client must read something of what it is sent.
    unread: Seconds = 30.0
    #: Observers at the same time; of more, the one that has been silent longest goes.
    max_observers: Positive = 256
    #: Work that one subscription may cause, in steps of about a microsecond (`sievenet.content.cost`).
    max_cost: Positive = 500_000
    #: Schemas, all versions counted, and their bytes as encoded.
    max_schemas: Positive = 4096
    max_schema_bytes: Positive = 8 << 20


class DataConfig(_Settings, frozen=True):
    """The data port of the embedded data plane."""

    #: Address for events.
    host: str = "127.0.0.1"
    #: UDP port; 0 takes a free one.
    port: Port = 7401
    #: Flows that a switch's table holds; None means any number.
    capacity: Positive | None = None


class AccessConfig(_Settings, frozen=True):
    """Who may connect (docs/howto/secure.md)."""

    #: The access folder (`sievenet keys authority` makes one); None lets in everybody who reaches the port.
    folder: str | None = None
    #: The member that this daemon is: its login is in the folder.
    login: str = "daemon"
    #: The audit log; None means audit.jsonl in the state directory, if there is one.
    audit: str | None = None
    #: Listen where others can connect, though nobody has to be known.
    insecure: bool = False


class OpenFlowConfig(_Settings, frozen=True):
    """Real switches: a network of Open vSwitch on this machine, or switches that connect to us."""

    #: Address that switches connect to, for "openflow".
    listen: str = "127.0.0.1:6653"
    #: How many switches to wait for before the network is looked at, for "openflow".
    switches: Positive = 1
    #: Files for TLS to switches (PEM): our certificate, its key, and who signs the switches' certificates.
    certificate: str | None = None
    key: str | None = None
    authority: str | None = None
    #: Seconds from a switch's acknowledgement until its change counts as in effect, for "openflow".  Open vSwitch
    #: forwards by a cache that follows its tables within milliseconds; switches without such a cache need 0.
    settle: Annotated[float, msgspec.Meta(ge=0)] = 0.1

    #: Names its network namespaces (NAME-net, NAME-h1, …); two networks need two names.
    name: str = "sievenet"
    #: Directory of its processes; None means /run/sievenet/NAME.
    run_dir: str | None = None
    #: How switches of "ovs" are joined: "veth" (as by cables) or "patch" (inside Open vSwitch: faster, no bandwidth).
    links: Literal["veth", "patch"] = "veth"
    #: Seconds that a switch may be without a connection before it counts as down.
    grace: Seconds = 3.0
    #: Seconds between looks at whether somebody else has changed a table.
    audit: Seconds = 1.0


class KernelConfig(_Settings, frozen=True):
    """Switches inside the Linux kernel; without any of this, of namespaces on this machine (`openflow.name`)."""

    #: Where agents of switches on other machines connect (`sievenet switch`), such as "0.0.0.0:7402"; the topology says
    #: which switches there are.
    listen: str | None = None
    #: Network interfaces of this machine, such as "eth1,eth2": the ports of `switch`, in this order.
    interfaces: str | None = None
    #: Which switch of the topology this machine is; None is the first.
    switch: str | None = None
    #: Seconds that an agent may be away before its switch counts as down.
    grace: Seconds = 3.0
    #: Seconds to wait for agents at the start; switches without one count as down then.
    wait: Seconds = 30.0


class HybridConfig(_Settings, frozen=True):
    """Exact filtering inside the network by matchers (docs/howto/hybrid.md)."""

    #: Mean seconds from publisher to subscriber that filtering by matchers may lead to; 0: the network filters alone,
    #: inf: no bound, everything is filtered exactly as early as there are matchers.
    latency_bound: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    #: How subspaces are chosen: "csa" (clusters at switches) or "ssa" (whole switches).
    method: Literal["csa", "ssa"] = "csa"
    #: Clusters that a category is cut into, a flow each.
    clusters: Annotated[int, msgspec.Meta(ge=1, le=256)] = 32
    #: Seconds between choices.
    interval: Seconds = 5.0
    #: What another choice has to be better by, as a share, to be worth changing.
    hysteresis: Annotated[float, msgspec.Meta(ge=0, le=10)] = 0.1


class NatsConfig(_Settings, frozen=True):
    """A control plane on several machines, by NATS JetStream (docs/howto/configurators.md); needs the extra `nats`."""

    #: Servers, such as "nats://10.0.0.1:4222,nats://10.0.0.2:4222"; None: everything on this machine.
    url: str | None = None
    #: What belongs together has the same name: letters, digits, - and _.
    fabric: str = "sievenet"
    #: What this daemon is called among those of its fabric; None: its machine's name and its process.
    name: str | None = None
    #: Seconds without a sign of life of the daemon that leads after which another one takes over.
    lease: Seconds = 3.0
    #: The same for configurators.
    silence: Seconds = 1.0
    #: Servers that keep each entry; 0: three if there are as many, else one.
    replicas: Annotated[int, msgspec.Meta(ge=0, le=5)] = 0
    #: File with credentials for NATS, and with the certificates that sign those of its servers (PEM).
    credentials: str | None = None
    authority: str | None = None


class LogConfig(_Settings, frozen=True):
    """What is logged, and where (docs/howto/web.md); nothing said: warnings and errors as text on stderr."""

    #: "text" or "json", one object per line.
    form: Literal["text", "json"] = "text"
    #: From which level on.
    level: Literal["debug", "info", "warning", "error"] = "warning"
    #: A file instead of stderr.
    file: str | None = None


class WebConfig(_Settings, frozen=True):
    """The web page, HTTP and WebSocket, and metrics (docs/howto/web.md); needs the extra `web`."""

    #: Address to listen on, such as "127.0.0.1:7480"; None: no web page. Anything but loopback needs `access.folder`.
    listen: str | None = None
    #: Names that browsers may call this server by, besides its address; others are refused (DNS rebinding).
    names: tuple[str, ...] = ()
    #: Connections at the same time.
    max_connections: Positive = 4096
    #: Connections of one member, where members are known.
    max_connections_each: Positive = 1024
    #: Streams of events at the same time, in all and of one member (where members are known).
    max_streams: Positive = 2048
    max_streams_each: Positive = 256
    #: Different filters that streams have, in all.
    max_filters: Positive = 2048
    #: Bytes of the largest request, and of one line of events in it.
    max_body: Positive = 4 << 20
    max_line: Positive = 1 << 16
    #: Bytes of events that are kept for clients that are slow or come back: of one filter, and in all.
    window: Positive = 1 << 20
    max_windows: Positive = 64 << 20
    #: Seconds that a filter is kept after its last client has left, so that it misses nothing if it comes back.
    linger: Seconds = 60.0
    #: Seconds in which a client must read something of what it is sent.
    unread: Seconds = 30.0
    #: Seconds between looks at the network while somebody has the page open.
    every: Seconds = 1.0
    #: Seconds that a sign-in lasts.
    session: Seconds = 12 * 3600.0


class TuningConfig(_Settings, frozen=True):
    """The network tunes itself (docs/howto/self-tuning.md)."""

    #: "off", "suggest" (search and tell) or "auto" (search and change); None is "auto" with a sample, else "off".
    mode: Literal["off", "suggest", "auto"] | None = None
    #: Part of the packets that a new plan must save.
    margin: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.05
    #: Events of a sample below which nothing is concluded.
    least: Positive = 400
    #: Seconds that events are watched before the first search, and after what is published or wanted has changed.
    watch: Annotated[float, msgspec.Meta(ge=0)] = 10.0
    #: Seconds between two changes of a category's plan.
    pause: Seconds = 20.0
    #: Part of one processor that searches may take on average.
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.09
    #: Seconds of processor of one search, and seconds after which one that does not end is given up.
    seconds: Seconds = 4.0
    patience: Seconds = 180.0
    #: Seconds between looks at what was measured.
    every: Seconds = 1.0


class RunConfig(_Settings, frozen=True):
    """What `sievenet up` does besides running the daemon."""

    #: A sample workload: "stock".
    sample: str | None = None
    #: The sample's events per second.
    rate: Annotated[float, msgspec.Meta(ge=0.1)] = 200.0
    #: With `tap`, the sample keeps one event in so many.
    tap_factor: Positive = 1
    #: Event caches in the daemon's process, for subscribers that are slow or want the past.
    caches: Annotated[int, msgspec.Meta(ge=0, le=64)] = 0
    #: Where those go: "first" (to the first hosts) or "auto" (near the switches where they cost the network least).
    place: Literal["first", "auto"] = "first"
    #: Exact matchers in the daemon's process, at different switches.
    matchers: Annotated[int, msgspec.Meta(ge=0, le=4096)] = 0
    #: Seconds after which it ends; None: when it is stopped.
    seconds: Seconds | None = None
    #: Seconds between looks at what goes on.
    every: Seconds = 1.0
    #: Whether it prints JSON, an object per look.
    json: bool = False


class Config(_Settings, frozen=True):
    """Everything that a daemon can be told."""

    #: The network: a shape with its settings, such as "testbed", "fattree,k=4", "line,switches=3", or a file's path.
    topology: str = "testbed"
    #: Directory for the journal and the daemon's key; None keeps everything in memory, to be gone with the process.
    state: str | None = None
    #: Leases, plans of new categories, partitions, trees: see `sievenet.control.config`.
    control: ControlConfig = ControlConfig()
    listen: ListenConfig = ListenConfig()
    #: What forwards: "embedded" (software switches in the daemon), "ovs" (Open vSwitch on this machine; needs root),
    #: "kernel" (the Linux kernel of this machine; needs root) or "openflow" (switches that exist already; the network
    #: is found out, `topology` is not used).
    dataplane: Literal["embedded", "ovs", "kernel", "openflow"] = "embedded"
    openflow: OpenFlowConfig = OpenFlowConfig()
    nats: NatsConfig = NatsConfig()
    #: Switches in the kernel on several machines.
    kernel: KernelConfig = KernelConfig()
    data: DataConfig = DataConfig()
    access: AccessConfig = AccessConfig()
    web: WebConfig = WebConfig()
    log: LogConfig = LogConfig()
    tuning: TuningConfig = TuningConfig()
    hybrid: HybridConfig = HybridConfig()
    #: What every link between switches does to packets; default: a perfect wire.
    links: LinkSettings = LinkSettings()
    #: Folder that publishers' taps write to: `status` shows the rates of its newest events (docs/reference/rates.md).
    tap: str | None = None
    run: RunConfig = RunConfig()
    #: Schemas to register at start: JSON files, or names of built-in ones.
    schemas: tuple[str, ...] = ()
    #: Seed of everything random in the data plane.
    seed: int = 0


def load_config(path: str | Path | None = None, **changes: Any) -> Config:
    """The configuration of a TOML file with changes on top; a change is ``section__key`` or ``key``, None is none.

    >>> load_config(listen__port=0, topology="ring,switches=4").listen.port
    0
    """
    data: dict[str, Any] = {}
    where = "config"
    if path is not None:
        where = str(path)
        try:
            data = tomllib.loads(Path(path).read_text())
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"Expected a readable file, got {error}", where=where) from None
        except tomllib.TOMLDecodeError as error:
            raise InvalidInput(f"Expected TOML, got something else: {error}", where=where) from None
    for key, value in changes.items():
        if value is None:
            continue
        *sections, name = key.split("__")
        target = data
        for section in sections:
            target = target.setdefault(section, {})
        target[name] = value
    try:
        return msgspec.convert(data, Config)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InvalidInput):
            raise error.__cause__ from None
        raise InvalidInput(_told(str(error)), where=where) from None


def _told(message: str) -> str:
    """What is wrong, with the values that there are instead, where there are only some.

    >>> _told("Invalid enum value 'loud' - at `$.log.level`")
    "Expected 'debug', 'info', 'warning' or 'error', got 'loud' - at `$.log.level`"
    """
    found = re.fullmatch(r"Invalid enum value (.*) - at `\$\.(.*)`", message)
    if found is None:
        return message
    kind: Any = Config
    for name in found[2].split("."):
        kind = get_type_hints(kind)[name]
    some = [repr(value) for each in (kind, *get_args(kind)) if get_origin(each) is Literal for value in get_args(each)]
    return f"Expected {', '.join(some[:-1])} or {some[-1]}, got {found[1]} - at `$.{found[2]}`" if some else message
