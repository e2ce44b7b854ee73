"""Our flow and the kernel's TCP through one veth pair limited by tbf, in two network namespaces (needs root).

Run without arguments: makes the namespaces, starts itself in both, prints {"ours": bit/s, "tcp": bit/s}, cleans up.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time

from sievenet.transport.actions import Deliver, Publish, Send
from sievenet.transport.options import Publishing, RateControl
from sievenet.transport.receiver import Receiver
from sievenet.transport.sender import Sender

HOST, PEER = "10.203.7.1", "10.203.7.2"
UDP, TCP = 7001, 7002
BITS, SECONDS, SETTLE, BODY = 0b1, 30.0, 10.0, 200


def publisher() -> None:
    """In the first namespace: publish faster than the link, obey feedback; a TCP beside it."""
    sender = Sender(1, Publishing(record=2, rate_control=True, queue=50), epoch=1)
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.bind((HOST, UDP))
    link.setblocking(False)
    bulk = socket.create_connection((PEER, TCP), timeout=10)
    bulk.setblocking(False)
    end, following = time.time() + SECONDS, time.time()
    block = bytes(65536)
    while (now := time.time()) < end:
        actions = []
        if now >= following:
            following += 1 / 800
            if not sender.blocked(BITS):
                actions += sender.publish(BITS, bytes(BODY), now)
        actions += sender.expire(now)
        readable, writable, _ = select.select([link], [bulk], [], max(0.0, min(following - time.time(), 0.001)))
        if readable:
            actions += sender.receive(link.recv(65535), time.time())
        if writable:
            try:
                bulk.send(block)
            except ConnectionError:  # the other end has seen enough
                return
        for action in actions:
            if isinstance(action, Publish | Send):
                link.sendto(action.data, (PEER, UDP))
        if not readable and not actions:
            time.sleep(0.0005)


def subscriber() -> None:
    """In the second namespace: receive both, and say what came after the first seconds."""
    receiver = Receiver(2, (BITS,), rate=RateControl())
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.bind((PEER, UDP))
    listening = socket.create_server((PEER, TCP))
    bulk, _ = listening.accept()
    began = time.time()
    ours = theirs = 0
    while (now := time.time()) < began + SECONDS - 1:
        due = receiver.timer()
        wait = 0.05 if due is None else min(max(due - now, 0.0), 0.05)
        readable, _, _ = select.select([link, bulk], [], [], wait)
        now = time.time()
        actions = []
        for each in readable:
            data = each.recv(65535)
            if each is link:
                actions += receiver.receive(data, now)
                ours += (len(data) + 42) * (now > began + SETTLE)
            else:
                theirs += len(data) * (now > began + SETTLE)
        actions += receiver.expire(now)
        for action in actions:
            if isinstance(action, Send) and not isinstance(action, Deliver):
                link.sendto(action.data, (HOST, UDP))
    seconds = SECONDS - 1 - SETTLE
    print(json.dumps({"ours": ours * 8 / seconds, "tcp": theirs * 8 * 1514 / 1448 / seconds}))


def main() -> int:
    """Set up, run both, take down."""
    if len(sys.argv) > 1:
        {"publisher": publisher, "subscriber": subscriber}[sys.argv[1]]()
        return 0
    one, two = f"svt{os.getpid()}a", f"svt{os.getpid()}b"

    def call(*words: str) -> None:
        subprocess.run(words, check=True)

    try:
        for name in (one, two):
            call("ip", "netns", "add", name)
        call("ip", "-n", one, "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", two)
        for name, device, address in ((one, "v0", HOST), (two, "v1", PEER)):
            call("ip", "-n", name, "addr", "add", f"{address}/24", "dev", device)
            call("ip", "-n", name, "link", "set", device, "up")
        tc = ("ip", "netns", "exec", one, "tc", "qdisc", "add", "dev", "v0")
        call(*tc, "root", "handle", "1:", "tbf", "rate", "1mbit", "burst", "4kb", "limit", "100kb")
        call(*tc, "parent", "1:1", "handle", "10:", "pfifo", "limit", "60")
        this = [sys.executable, os.path.abspath(__file__)]
        with subprocess.Popen(["ip", "netns", "exec", two, *this, "subscriber"], stdout=subprocess.PIPE) as receiving:
            time.sleep(1.0)
            call("ip", "netns", "exec", one, *this, "publisher")
            out, _ = receiving.communicate(timeout=20)
        sys.stdout.write(out.decode())
        return receiving.returncode
    finally:
        for name in (one, two):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
