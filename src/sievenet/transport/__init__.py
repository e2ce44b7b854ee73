"""Order, recovery and congestion control, end to end, over any best-effort data plane: protocol objects without I/O.

Bytes and `now` go in; bytes to send, deliveries, losses and the next timer come out.

    options, actions, statistics            what can be set, what is to be done, what was done
    bloom → codec, control                  what is said, as bits and bytes
    latch, stretch → account → stream       order and loss detection, per stream
    timers, requests, inquiries             asking: for what is lost, and what it was
    cache, repairs, history                 answering
    duplicates                              what came before, for clients and routers
    response, doubt, rates, flows           content-aware TFMCC
    receiver, sender                        the compositions: what shells use (`client.transport` in real time)
    simulation                              a lossy overlay in virtual time, with a TCP to compete against

Here are the names that applications need for `subscribe` and `advertise`.

Imports only `content`, `errors` and `simulation`.
"""

from sievenet.transport.actions import Gap
from sievenet.transport.options import Order, Publishing, RateControl, Recover
from sievenet.transport.statistics import ReceiverStatistics, SenderStatistics

__all__ = ["Gap", "Order", "Publishing", "RateControl", "ReceiverStatistics", "Recover", "SenderStatistics"]
