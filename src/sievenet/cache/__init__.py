"""Event caches, without sockets and clocks: what a cache and its subscribers decide.

    overload         does more come than a subscriber can take? (`Meter`, `Pace`)
    states           idle → taking → active → resuming → stopping → idle, as a table
    subscriber       by which way events come; each once, in order (`Subscriber`)
    ring, spill      recent events, bounded, in memory and on disk
    queue, release   what waits for subscribers, and how fast it goes to them
    looks            has everything come that was on its way to the cache?
    search           what a subscriber lacks of a ring, and what nobody has any more
    cache            all of it: rings, queues, responsibilities (`Cache`)
    messages, record what travels between the two

`client.caching` and `cachehost` are the shells around them.

Imports only `errors`, `network` and `transport`.
"""
