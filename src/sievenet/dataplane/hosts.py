"""What a host needs to take part: the commands of `ip` that make a machine, or a namespace, one.

A host sends content by its link (a routing rule for what is made here) and takes all content that comes in as its own
(a local route), under one static neighbour: no neighbour discovery, no multicast groups, nothing rewritten but a UDP
port.  The network card has the address that content is sent to, the same at all hosts, since content is addressed to
nobody in particular.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address, IPv6Network
from typing import Final

from sievenet.errors import InvalidInput

__all__ = ["CONTROL", "MAC", "OWN", "host_commands"]

#: Of every host: a packet of content fits any host as it is.
MAC: Final = "02:53:56:00:00:01"
#: Where the addresses of hosts are from, and the one of them that is the control plane's.
OWN: Final = IPv6Network("fd0f::/16")
CONTROL: Final = IPv6Address("fd0f::1")
_DEVICE: Final = re.compile(r"[A-Za-z0-9_.-]{1,15}")


def host_commands(device: str, address: str) -> list[str]:
    """Commands for `ip -6 -batch -` that make whoever runs them a host, behind this device, with this address."""
    if not _DEVICE.fullmatch(device):
        raise InvalidInput(expected="the name of a network device", got=device, where="host")
    try:
        own = IPv6Address(address)
    except AddressValueError:
        own = CONTROL
    if own == CONTROL or own not in OWN:
        raise InvalidInput(expected=f"an address in {OWN} other than {CONTROL}", got=address, where="host")
    return [
        f"link set {device} address {MAC} addrgenmode none up",
        f"address add {own}/128 dev {device} nodad",
        f"route add {OWN} dev {device} metric 1",
        f"neighbour add {CONTROL} lladdr {MAC} dev {device} nud permanent",
        f"route add fd0e::/16 via {CONTROL} dev {device} src {own} table 100",
        # What is made here goes out by the link, what comes in is ours.
        "rule add pref 10 iif lo to fd0e::/16 lookup 100",
        "rule add pref 20 lookup local",
        "rule del pref 0",
        "route add local fd0e::/16 dev lo",
    ]
