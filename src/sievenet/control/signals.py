"""What goes into the controller, and what comes out: stimuli and instructions.

The controller (`controller`) neither waits nor reads a clock.  Its shell (`plane`) hands it
stimuli with the time, and carries out the instructions that come back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from sievenet.control.commands import Command
from sievenet.errors import SievenetError
from sievenet.network import FlowChange, FlowTable, Topology

if TYPE_CHECKING:
    from sievenet.content import Subscription
    from sievenet.control.covering import Coverer
    from sievenet.index import Dz, Plan
    from sievenet.session.message import Message

__all__ = [
    "Acknowledged",
    "Adopted",
    "Apply",
    "ConfiguratorGone",
    "ConfiguratorHeard",
    "ConfiguratorJoined",
    "Consult",
    "Cover",
    "Covered",
    "Detach",
    "Divert",
    "Expired",
    "Instruction",
    "LinkChanged",
    "Merged",
    "NotRead",
    "NotWritten",
    "Placed",
    "PlanRequest",
    "Read",
    "Refused",
    "Renewed",
    "Reply",
    "Request",
    "Sized",
    "Soon",
    "Stimulus",
    "SwitchChanged",
    "SwitchTable",
    "Tell",
    "Tick",
    "Undefined",
    "Write",
    "Written",
]


# -- stimuli -------------------------------------------------------------------------------


class Request(msgspec.Struct, frozen=True):
    """Somebody asks for something; the reply carries the same ticket."""

    ticket: int
    command: Command
    #: The content of the command decoded, if that is at hand.
    said: Subscription | None = None


class PlanRequest(msgspec.Struct, frozen=True):
    """Somebody asks for another plan."""

    ticket: int
    number: int
    plan: Plan


class Placed(msgspec.Struct, frozen=True):
    """The data plane gave a client this port."""

    client: str
    switch: str
    port: int


class Renewed(msgspec.Struct, frozen=True):
    """A client gave a sign of life."""

    client: str


class Written(msgspec.Struct, frozen=True):
    """The journal holds it."""

    serial: int


class NotWritten(msgspec.Struct, frozen=True):
    """The journal does not hold it, and why."""

    serial: int
    error: SievenetError


class Acknowledged(msgspec.Struct, frozen=True):
    """Switches carried these out."""

    serials: Sequence[int]


class Undefined(msgspec.Struct, frozen=True):
    """The switch did not acknowledge in time: nobody knows what it carried out."""

    serial: int


class Refused(msgspec.Struct, frozen=True):
    """The switch carried out nothing of it, for instance because its table is full."""

    serial: int
    error: SievenetError


class SwitchTable(msgspec.Struct, frozen=True):
    """What a switch holds."""

    serial: int
    table: FlowTable


class NotRead(msgspec.Struct, frozen=True):
    """The switch did not say what it holds."""

    serial: int


class SwitchChanged(msgspec.Struct, frozen=True):
    """A switch came up or went down."""

    switch: str
    up: bool


class Divert(msgspec.Struct, frozen=True):
    """Somebody asks that these subspaces of a category, and no others, go to these ports at a switch."""

    ticket: int
    number: int
    switch: str
    wanted: dict[Dz, int]


class Redrawn(msgspec.Struct, frozen=True):
    """The network has other switches, links or hosts than before."""

    topology: Topology


class Sized(msgspec.Struct, frozen=True):
    """A switch holds so many entries, or any number."""

    switch: str
    capacity: int | None


class Merged(msgspec.Struct, frozen=True):
    """Merges were chosen: by the number of a lane's holdings, then by switch."""

    chosen: Mapping[int, Mapping[str, Collection[Any]]]


class LinkChanged(msgspec.Struct, frozen=True):
    """A link came up or went down."""

    a: str
    b: str
    up: bool


class Adopted(msgspec.Struct, frozen=True):
    """All publishers of a category use the plan of this epoch, or are gone."""

    number: int
    epoch: int


class Covered(msgspec.Struct, frozen=True):
    """What was to be covered, each as keys or as the reason why not."""

    serial: int
    found: Sequence[list[int] | SievenetError]


class ConfiguratorJoined(msgspec.Struct, frozen=True):
    """A configurator has come."""

    name: str
    process: int = 0


class ConfiguratorHeard(msgspec.Struct, frozen=True):
    """Configurators say something (`configurators.messages`): who, and what; what came together is told together."""

    heard: Sequence[tuple[str, Sequence[object]]]


class ConfiguratorGone(msgspec.Struct, frozen=True):
    """A configurator is lost."""

    name: str


class Tick(msgspec.Struct, frozen=True):
    """Time has passed, or the controller asked to be called again."""


Stimulus: TypeAlias = (
    Request
    | PlanRequest
    | Placed
    | Renewed
    | Written
    | NotWritten
    | Acknowledged
    | Undefined
    | Refused
    | SwitchTable
    | NotRead
    | SwitchChanged
    | LinkChanged
    | Redrawn
    | Sized
    | Divert
    | Merged
    | Adopted
    | Covered
    | ConfiguratorJoined
    | ConfiguratorHeard
    | ConfiguratorGone
    | Tick
)


# -- instructions --------------------------------------------------------------------------


class Write(msgspec.Struct, frozen=True):
    """Put records into the journal; answered by `Written` or `NotWritten`."""

    serial: int
    records: Sequence[bytes]
    #: They say everything: forget all that was written before.
    replace: bool = False


class Apply(msgspec.Struct, frozen=True):
    """Tell a switch all that came up for it, in one bundle; answered by `Acknowledged`, `Undefined` or `Refused`."""

    serial: int
    switch: str
    #: Changes for whom they came up.
    parts: Sequence[Sequence[FlowChange]]


class Read(msgspec.Struct, frozen=True):
    """Ask a switch what it holds; answered by `SwitchTable` or `NotRead`."""

    serial: int
    switch: str


class Cover(msgspec.Struct, frozen=True):
    """Work out keys, away from the event loop; answered by `Covered`."""

    serial: int
    coverer: Coverer
    #: What to cover, decoded or as the journal's bytes, and whether it is wanted or else offered.
    contents: Sequence[tuple[Subscription | bytes, bool]]


class Reply(msgspec.Struct, frozen=True):
    """A request is done, or refused."""

    ticket: int
    error: SievenetError | None = None
    result: object = None


class Tell(msgspec.Struct, frozen=True):
    """Tell the publishers of a category to use its plan; answered by `Adopted`."""

    number: int
    epoch: int


class Detach(msgspec.Struct, frozen=True):
    """A client's port is not needed any more."""

    client: str


class Expired(msgspec.Struct, frozen=True):
    """A client's lease ended."""

    client: str


class Consult(msgspec.Struct, frozen=True):
    """Tell a configurator; what it says comes as `ConfiguratorHeard`."""

    name: str
    message: Message


class Soon(msgspec.Struct, frozen=True):
    """Call again with `Tick` once others had their turn."""


Instruction: TypeAlias = Write | Apply | Read | Cover | Reply | Tell | Detach | Expired | Consult | Soon
