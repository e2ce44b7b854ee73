"""Bridges to other systems: `mqtt.Bridge` is a client of a fabric or router and of an MQTT broker at the same time.

    topic       templates of topics: sensors/{station}/{kind}
    mapping     the mapping file: which topics become which events, and which events which topics
    broker      the connection to a broker (extra `mqtt`)
    mqtt        the bridge itself

Imports only `client`, `content`, `errors`, `session` and `workload`.
"""
