"""Linux itself as the content switch: programs in the kernel forward by what packets say.

In the kernel: `sieve.c`, shipped compiled as `sieve.o` (`image`).  Talking to it: `bpf` (the system call), `entry`
(what flows are there), `ranges` (their outputs), `switch` (one switch), `carrier` (what its devices say).  All of them:
`network` (namespaces and virtual links on this machine), `plane` (as a `DataPlane`).  May import what `dataplane` may.
"""
