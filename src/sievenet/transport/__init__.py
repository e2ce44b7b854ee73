"""Order, recovery and congestion control, end to end, over any best-effort data plane: protocol objects without I/O.

Bytes and `now` go in; bytes to send, deliveries, losses and the next timer come out. Imports `content` and `errors`.

    bloom → wire, control                   what is said, as bits and bytes
    latch → session                         order and loss detection, per publisher
    distance, requests, repairs, cache, log SRM over publish/subscribe
    response, intervals, rates, flows       content-aware TFMCC
    receiver, sender                        the compositions: what applications' shells use
    simulation                              a lossy overlay in virtual time, with a TCP to compete against
"""
