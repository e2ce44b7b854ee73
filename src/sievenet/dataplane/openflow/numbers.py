"""The numbers of OpenFlow 1.3 and 1.4 that we use, under the standard's names."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = [
    "ALL_TABLES",
    "ANY",
    "CONTROLLER",
    "ERRORS",
    "IN_PORT",
    "LOCAL",
    "NO_BUFFER",
    "ONF",
    "V13",
    "V14",
    "Bundle",
    "Command",
    "Multipart",
    "Oxm",
    "Type",
]

V13: Final = 4
V14: Final = 5

#: The Open Networking Foundation's experimenter number: bundles in version 1.3 are its extension 230.
ONF: Final = 0x4F4E4600
ONF_BUNDLE_CONTROL: Final = 2300
ONF_BUNDLE_ADD: Final = 2301

IN_PORT: Final = 0xFFFFFFF8
CONTROLLER: Final = 0xFFFFFFFD
LOCAL: Final = 0xFFFFFFFE
ANY: Final = 0xFFFFFFFF
ALL_TABLES: Final = 0xFF
NO_BUFFER: Final = 0xFFFFFFFF


class Type(IntEnum):
    """Kinds of messages."""

    HELLO = 0
    ERROR = 1
    ECHO_REQUEST = 2
    ECHO_REPLY = 3
    EXPERIMENTER = 4
    FEATURES_REQUEST = 5
    FEATURES_REPLY = 6
    SET_CONFIG = 9
    PACKET_IN = 10
    PORT_STATUS = 12
    PACKET_OUT = 13
    FLOW_MOD = 14
    GROUP_MOD = 15
    MULTIPART_REQUEST = 18
    MULTIPART_REPLY = 19
    BARRIER_REQUEST = 20
    BARRIER_REPLY = 21
    ROLE_REQUEST = 24
    BUNDLE_CONTROL = 33
    BUNDLE_ADD = 34


class Command(IntEnum):
    """What to do with a flow."""

    ADD = 0
    MODIFY_STRICT = 2
    DELETE = 3
    DELETE_STRICT = 4


class Multipart(IntEnum):
    """Kinds of questions that may take several messages to answer."""

    FLOW = 1
    TABLE = 3
    PORT_STATS = 4
    GROUP = 6
    GROUP_DESC = 7
    TABLE_FEATURES = 12
    PORT_DESC = 13


class Bundle(IntEnum):
    """The steps of a bundle; each reply is one more than its request."""

    OPEN = 0
    CLOSE = 2
    COMMIT = 4
    DISCARD = 6


class Oxm(IntEnum):
    """Fields of packets, of the class that every switch knows."""

    IN_PORT = 0
    METADATA = 2
    ETH_DST = 3
    ETH_TYPE = 5
    IP_DSCP = 8
    IP_PROTO = 10
    UDP_SRC = 15
    UDP_DST = 16
    IPV6_SRC = 26
    IPV6_DST = 27


#: Names of the errors that can befall us: (type, code) → what it means.
ERRORS: Final[dict[tuple[int, int], str]] = {
    (0, 0): "no common version",
    (0, 1): "hello refused",
    (1, 0): "version not supported",
    (1, 1): "type of message not supported",
    (1, 2): "multipart request not supported",
    (1, 5): "not permitted",
    (1, 6): "wrong length",
    (1, 10): "another controller leads",
    (11, 0): "a controller of a later generation leads",
    (11, 1): "role not supported",
    (2, 0): "unknown action",
    (2, 4): "output to an impossible port",
    (2, 5): "bad argument of an action",
    (2, 7): "too many actions",
    (2, 9): "group does not exist",
    (2, 10): "an action does not fit its match",
    (2, 13): "field cannot be set",
    (2, 15): "bad value for a field",
    (3, 0): "unknown instruction",
    (3, 2): "table does not exist",
    (4, 1): "bad length of a match",
    (4, 6): "field cannot be matched",
    (4, 7): "bad value of a field",
    (4, 8): "bad mask of a field",
    (4, 9): "a field needs another one",
    (4, 10): "a field twice",
    (5, 1): "table full",
    (5, 2): "table does not exist",
    (5, 4): "not permitted",
    (6, 0): "group exists",
    (6, 3): "out of groups",
    (6, 8): "group does not exist",
    (17, 2): "bundle exists",
    (17, 3): "bundle is closed",
    (17, 9): "bundle in use",
    (17, 15): "a message of the bundle failed",
}
TABLE_FULL: Final = (5, 1)
#: "A message of the bundle failed": that message's own error says why.
BUNDLE_FAILED: Final = 17
