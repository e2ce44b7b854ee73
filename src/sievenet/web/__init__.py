"""The web: a live page, HTTP and WebSocket for publishers and subscribers, metrics.

`server` listens in the daemon's own event loop; `routes` is the table of what there is and who may ask for it, and
`handlers` what is done then. Whoever comes is admitted by the daemon's lobby; what a person publishes and
subscribes to goes through a node of its own (`resident`, `channel`). What is streamed is a `broadcast` over a `window`
to any number of `stream`s; the page's own stream is `live`, of `snapshot`s. `metrics` are for Prometheus, and `monitor`
serves them for other processes. `page/` is the page itself. Needs the extra `web`.

Imports only `access`, `client`, `config`, `content`, `control`, `daemon`, `errors`, `index`, `session` and
`workload`.
"""
