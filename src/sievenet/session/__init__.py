"""One conversation: framed messages over a stream, between whoever listens and whoever dials.

Every part of Sievenet that speaks over TCP or TLS speaks through this package, with its own messages:

    `message`     the base of all messages, those that every protocol has (Done, Failure, Goodbye, Alive), and errors
                  that cross the wire
    `framing`     messages to bytes and back; bounded
    `protocol`    `Protocol`: the table of a protocol's messages, with the least role that may send each, and bounds
    `callee`      the listening side of one conversation, pure: hello, roles, malformed messages, silence, unread bytes
    `limits`      what one connection and all together may use, pure
    `listener`    its one shell: `Listener` accepts, lets in and looks after; `Service` is the part behind it
    `connection`  `Connection`: one stream with its bounded buffer; parts derive from it what they keep of each
    `requests`    `RequestService`: a service whose requests take a while, beside each other and bounded in bytes
    `caller`      the dialling side of one conversation, pure: requests and answers by number, silence
    `link`        its one shell: `Link` is one connection
    `dialler`     `Dialler`: a lasting relation; parts derive from it what they say and hear
    `backoff`     when to dial again, pure
    `lifetime`    tasks that end with their owner, and owners used in ``async with``
    `tls`         contexts for TLS from files

How a connection is let in (the contract with `sievenet.access`):

1. The first frame is the protocol's `Hello`: at most `Protocol.max_hello` bytes, within a few seconds. It has the
   version, and in the fields of `message.Hello` a name, the role asked for, a ticket of an earlier connection and a
   token.
2. The listening side makes `access.Credentials` of the hello, of the verified certificate of the TLS connection and of
   the address, and asks its `access.Gate` (`Listener(gate=…)`) once. The gate answers with an `Identity` or raises
   `Rejected`, which is told as `Failure` before the connection is closed. Then the part behind the connection
   (`Service.hello`, which gets the identity too) welcomes it, or raises.
3. From then on `connection.identity` says who speaks. Each message that comes is looked up in the protocol's table:
   `Protocol.check(role, message)` raises `Rejected` if the role is not enough. This is done in one place, before the
   part behind the connection sees the message. Permissions as filters and quotas belong to the identity and are checked
   by that part, which gets the connection with each message.

Decisions are pure (bytes and the time in, instructions out); the shells hold the sockets.

Imports only `access` and `errors`.
"""
