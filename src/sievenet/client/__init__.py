"""The client library: connect, advertise, publish, subscribe.

`node` is where to begin. Below it, pure state (`conversation`, `ledger`, `reconnect`, `outbox`, `receiver`, `edge`,
`window`, `inbox`) and three thin shells (`link` for TCP, `port` for packets, `session` around both). Names are imported
from the modules, or as `sievenet.connect`; loading this package loads no compiler.
"""
