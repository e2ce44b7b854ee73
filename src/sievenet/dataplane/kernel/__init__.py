"""Linux itself as the content switch: programs in the kernel forward by what packets say.

In the kernel: `sieve.c`, shipped compiled as `sieve.o` (`image`).  Talking to it: `bpf` (the system call), `entry`
(what flows are there), `ranges` (their outputs), `permits` (who may publish what), `switch` (one switch), `carrier` and
`queues` (what its devices say).  Where switches are: `network` (namespaces and virtual links on this machine), or
machines: `machine` (this one's interfaces), `agent` (does what a control plane elsewhere says), `fleet` (that control
plane's side), `protocol` (what the two say), `beacon` (which switch is at the other end of a cable).  All of them as a
`DataPlane`: `plane`, by way of `handle`.  May import what `dataplane` may, and `session`.
"""
