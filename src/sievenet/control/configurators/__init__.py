"""Configurators: other processes work out what changes in flow tables; one process decides and tells the switches.

What a request costs is mostly the walk over the registrations of its partitions, and that needs nobody else.  So a
partition can be *handed out* to a configurator:

    ┌─────────── dispatcher (in the daemon) ───────────┐          ┌──── configurator ────┐
    │ journal ─▶ state ─▶ lanes: queue, registrations  │  Load    │ copies of partitions │
    │                       │ batch      ▲ changes     │  Order   │                      │
    │                       ▼            │             │ ───────▶ │ registrations, walk  │
    │                     desk: owner, epoch per lane  │ ◀─────── │                      │
    │                                    │             │  Answer  └──────────────────────┘
    │                                    ▼             │
    │                     rollout ─▶ switches          │
    └──────────────────────────────────────────────────┘

**One truth.**  The dispatcher alone writes the journal and tells the switches, and its lanes keep knowing what is
registered, without walking over it.  What a configurator holds is a copy that can be made again at any time, so
nothing is lost with one: its partitions are loaded elsewhere, or walked over here if nobody is left.

**Owners and epochs.**  A partition has at most one owner.  Each time it is given to somebody the *epoch* grows, and an
answer counts only if it comes from the owner, for its epoch, to the order that is open.  A configurator that was
paused and wakes up believing that it still owns something is not heard, and it cannot reach a switch.

**An order is repeated as it was.**  Lanes have one batch on its way at a time.  When the owner is lost in between, the
dispatcher knows what is registered *with* the batch; the next owner gets that and takes the batch back before it is
given it as an order (`Load.undo`).  Registrations are counted, so that is exactly the state before.

Modes: `one` hands nothing out.  `sea` (shared everything) overlaps the waiting for switches within the process: so many
partitions at a time have their turn (`turns`).  `sna` (shared nothing) hands partitions out to processes, evenly;
`sna-lb` moves them from one that has too much to do to one that has little (`monitor`).

    `post`      a partition that is handed out
    `desk`      whose is what, and what is asked of whom; pure
    `monitor`   which partition should move; pure
    `turns`     who may begin; pure
    `copies`    the other side: partitions and orders of one configurator; pure
    `words`     what is said and written across machines
    `packed`    changes as bytes
    `messages`  what the two say to each other

The shells are `daemon.configurators` and `sievenet configurator`.
"""
