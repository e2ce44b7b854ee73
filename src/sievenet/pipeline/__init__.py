"""The data pipeline: Spark jobs that learn index plans from traffic, and give them back to the network.

    tap, files ──ingest──▶ events + quarantine ──profile──▶ ranks, histograms ──plan──▶ plan file
    journal ──snapshot──▶ subscriptions ─────────┴──evaluate, traffic, watch──┘

A step is a function DataFrame → DataFrame in a module of its own; `store` has the tables, `sources` reads what people
bring, `files` reads and writes single files wherever they lie; `spark` alone starts Spark. What is counted and
searched for on plain batches is `sievenet.tuning`; here it is fed. Start with `tables` (what the columns are), then
`evaluate`. Needs the extra `sievenet[pipeline]` and Java 17; importing this package alone does not.

Imports only `cache`, `content`, `control`, `errors`, `index`, `network`, `programs`, `tap`, `tuning` and `workload`.
"""
