"""Tuning: which index plan makes a network carry least for a workload, on plain arrays in one process.

    events ──profile──▶ ranks, histograms ──┐
    events × subscriptions ──judge──▶ costs ┴── search ──▶ the best plan, and why

`search` tries plans (`candidate`, `bits`), a `judge` says what each costs on a sample (`cost`): subscriptions become
boxes (`covers`), events are counted against them (`deliveries`), packets cross the links of a network (`crossings`).
Whoever has a sample can search: the pipeline feeds it from all of the history by Spark, and gives it a judge and
clusters that use all executors.  Counts are sums over events, so batches can be counted anywhere and added.
No Spark, no Arrow, no clock but an argument.

Imports only `content`, `errors`, `index`, `jit`, `matcher` and `network`.
"""
