"""The table of everything that can be asked for by HTTP, and the least role that may ask for it.

None stands for anybody, also without a sign-in. Where a request becomes one of the control protocol, that protocol's
own table counts too.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sievenet.access.identity import Role

__all__ = ["ROUTES", "Route"]


class Route(NamedTuple):
    """One thing that can be asked for; ``name`` is the handler's."""

    method: str
    path: str
    name: str
    role: Role | None
    about: str


ROUTES: Final = (
    Route("GET", "/", "page", None, "the page"),
    Route("GET", "/static/{name}", "static", None, "its style and scripts"),
    Route("GET", "/healthz", "health", None, "whether the process works"),
    Route("GET", "/readyz", "readiness", None, "whether it can do its work: 503 if switches are down"),
    Route("GET", "/me", "me", None, "who you are, and the token for X-CSRF-Token"),
    Route("POST", "/sign-in", "sign_in", None, "sign in with a token, for a cookie"),
    Route("POST", "/sign-out", "sign_out", None, "sign out"),
    Route("GET", "/metrics", "metrics", Role.OBSERVER, "counts for Prometheus"),
    Route("GET", "/status", "status", Role.OBSERVER, "what `sievenet status --json` says"),
    Route("GET", "/topology", "topology", Role.OBSERVER, "what `sievenet topo --json` says"),
    Route("GET", "/live", "live", Role.OBSERVER, "the page's stream: a snapshot, then merge patches"),
    Route(
        "GET",
        "/flows/{switch}",
        "flows",
        Role.OBSERVER,
        "the flow table of a switch, in words; where members are known, for operators",
    ),
    Route("GET", "/schemas", "schemas", Role.OBSERVER, "all schemas"),
    Route("GET", "/schemas/{name}", "schema", Role.OBSERVER, "one schema"),
    Route("POST", "/schemas", "register", Role.CLIENT, "register a schema"),
    Route(
        "GET",
        "/explain",
        "explain",
        Role.OBSERVER,
        "an event's way, who gets it, who not and why (`event`, `from`); where members are known, for operators",
    ),
    Route(
        "GET",
        "/clients/{name}",
        "client",
        Role.OBSERVER,
        "what a client advertises and subscribes to; where members are known, for operators",
    ),
    Route("GET", "/plans/{category}", "plan", Role.OBSERVER, "the index plan of a category"),
    Route(
        "POST",
        "/plans/{category}",
        "apply",
        Role.OPERATOR,
        "change it: a plan as JSON in the body, or `?builtin=NAME`, `?regular=BITS`, `?suggested`",
    ),
    Route("POST", "/publish/{category}", "publish", Role.CLIENT, "publish events: JSON or JSON lines"),
    Route("GET", "/subscribe", "subscribe", Role.CLIENT, "events as they come (`filter`), or a WebSocket"),
)
