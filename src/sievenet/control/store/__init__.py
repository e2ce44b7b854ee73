"""The store: what daemons and configurators on several machines share, in NATS or in memory.

    ┌────────── store ──────────────────────────────────────────────────────────┐
    │ cells   leader ─ journal ─ wiring ─ owner.TERM.PARTITION     compare and set │
    │ logs    journal.TERM-N ─ partition.TERM.PARTITION            ordered, durable │
    │ words   beat ─ ask.NAME ─ answer.TERM                        may be lost      │
    └────────────────────────────────────────────────────────────────────────────┘

One machine needs none of this: there the journal is a file, and configurators hang on the daemon's sockets.

**Everything is fenced by comparing.**  An entry goes into a log only if the log's last entry is the one that the writer
knows, and a cell changes only if it is as the writer saw it.  So a writer that was paused and has missed something
learns it from the store (`Fenced`), whatever its clock says.

**One leader.**  Daemons of one fabric take turns by the cell `leader` (`leadership`).  Its *term* grows with each of
them.  A new leader changes the cell `journal` and writes its term into the journal before it reads it (`journal`):
from then on the leader of before can write neither.  What belongs to a term has the term in its name, so that an older
leader's leftovers are never mistaken for something else.  Switches are fenced by the same number (OpenFlow's
generation).

    `store`       the interface
    `memory`      in this process, for tests and simulations
    `nats`        NATS JetStream
    `logs`        entries of any size: cut into pieces, put together again
    `leadership`  who leads
    `journal`     the control plane's journal in a store
"""
