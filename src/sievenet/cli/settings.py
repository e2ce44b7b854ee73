"""The settings of `sievenet up`: a configuration file, and flags on top of it.

`KEYS` says which keys of the file each flag stands for, so whatever a flag does, a file can do too; a test holds the
table to the flags. A flag that was not given changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from sievenet.config import Config

__all__ = ["KEYS", "configured"]

#: Parameter of `up` → keys of the configuration file.
KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "topology": ("topology",),
    "dataplane": ("dataplane",),
    "listen": ("openflow.listen", "kernel.listen"),
    "interfaces": ("kernel.interfaces",),
    "own": ("kernel.switch",),
    "switches": ("openflow.switches",),
    "network": ("openflow.name",),
    "schemas": ("schemas",),
    "sample_name": ("run.sample",),
    "rate": ("run.rate",),
    "tune": ("tuning.mode",),
    "tap": ("tap",),
    "tap_factor": ("run.tap_factor",),
    "caches": ("run.caches",),
    "place": ("run.place",),
    "state": ("state",),
    "port": ("listen.port",),
    "data_port": ("data.port",),
    "host": ("listen.host", "data.host"),
    "access": ("access.folder",),
    "web": ("web.listen",),
    "count": ("run.matchers",),
    "bound": ("hybrid.latency_bound",),
    "audit": ("access.audit",),
    "insecure": ("access.insecure",),
    "kind": ("control.kind",),
    "capacity": ("data.capacity", "control.capacity"),
    "lease": ("control.lease",),
    "control": ("control.mode",),
    "configurators": ("control.configurators",),
    "nats": ("nats.url",),
    "seconds": ("run.seconds",),
    "every": ("run.every",),
    "log": ("log.form",),
    "log_level": ("log.level",),
    "log_file": ("log.file",),
    "as_json": ("run.json",),
}


def configured(ctx: click.Context) -> Config:
    """What the file and the flags of this call say."""
    from msgspec.structs import replace

    from sievenet.config import load_config

    given = {
        name: value
        for name, value in ctx.params.items()
        if ctx.get_parameter_source(name) not in (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP, None)
    }
    file = given.pop("config_file", None)
    changes: dict[str, Any] = {}
    for name, value in given.items():
        keys = KEYS[name]
        if name == "listen":  # switches connect to it, or agents of switches
            keys = keys[1:] if given.get("dataplane") == "kernel" else keys[:1]
        for key in keys:
            changes[key.replace(".", "__")] = value
    interfaces = given.get("interfaces")
    if interfaces is not None and file is None:
        # One switch with a host at each interface, if nothing else is said.
        changes.setdefault("topology", f"line,switches=1,hosts={len(interfaces.split(','))}")
    config = load_config(file, **changes)
    if config.tuning.mode is None and config.run.sample is not None:
        config = replace(config, tuning=replace(config.tuning, mode="auto"))
    return config
