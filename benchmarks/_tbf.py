"""Our flow and the kernel's TCP through one link limited by tbf, in network namespaces of their own (needs root).

    publisher, TCP ── veth ── router ══ veth, tbf of 1 Mb/s, pfifo of 60 ══ subscriber, TCP

The narrow link is a router's, not the sender's own: a kernel keeps its TCP from filling the queue of its own interface
(two packets or a millisecond's worth, "TCP small queues"), and whoever shares that queue would take the rest.

Run without arguments: makes the namespaces, starts itself in two, prints {"ours": bit/s, "tcp": bit/s}, cleans up.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time

from sievenet import programs
from sievenet.transport.actions import Deliver, Publish, Send
from sievenet.transport.options import Publishing, RateControl
from sievenet.transport.receiver import Receiver
from sievenet.transport.sender import Sender

HOST, PEER = "10.203.7.1", "10.203.8.1"
UDP, TCP = 7001, 7002
BITS, SECONDS, SETTLE, BODY = 0b1, 105.0, 15.0, 200
#: The TCP that the response function describes; what a machine uses by default may not share at all (BBR).
CONTROL = b"reno"


def publisher() -> None:
    """In the first namespace: publish faster than the link, obey feedback; a TCP beside it."""
    sender = Sender(1, Publishing(record=2, rate_control=True, queue=50), epoch=1)
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.bind((HOST, UDP))
    link.setblocking(False)
    bulk = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bulk.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONTROL)
    bulk.settimeout(10)
    bulk.connect((PEER, TCP))
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
    one, middle, two = (f"svt{os.getpid()}{letter}" for letter in "abc")

    def call(*words: str) -> None:
        subprocess.run(programs.command(*words), check=True)

    try:
        for name in (one, middle, two):
            call("ip", "netns", "add", name)
        for end, address, device, near in ((one, HOST, "va", "10.203.7.254"), (two, PEER, "vb", "10.203.8.254")):
            call("ip", "-n", middle, "link", "add", device, "type", "veth", "peer", "name", "v0", "netns", end)
            for name, own, number in ((end, "v0", address), (middle, device, near)):
                call("ip", "-n", name, "addr", "add", f"{number}/24", "dev", own)
                # Packets as a wire would carry them: no trains that a queue takes or drops as one.
                call("ip", "-n", name, "link", "set", own, "gso_max_segs", "1", "up")
            call("ip", "-n", end, "route", "add", "default", "via", near)
        call("ip", "netns", "exec", middle, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        tc = ("ip", "netns", "exec", middle, "tc", "qdisc", "add", "dev", "vb")
        call(*tc, "root", "handle", "1:", "tbf", "rate", "1mbit", "burst", "4kb", "limit", "100kb")
        call(*tc, "parent", "1:1", "handle", "10:", "pfifo", "limit", "60")
        this = [sys.executable, os.path.abspath(__file__)]
        inner = ("ip", "netns", "exec", two, *this, "subscriber")
        with subprocess.Popen(programs.command(*inner), stdout=subprocess.PIPE) as receiving:
            time.sleep(1.0)
            call("ip", "netns", "exec", one, *this, "publisher")
            out, _ = receiving.communicate(timeout=20)
        sys.stdout.write(out.decode())
        return receiving.returncode
    finally:
        for name in (one, middle, two):
            subprocess.run(programs.command("ip", "netns", "del", name), check=False, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
