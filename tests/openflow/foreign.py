"""A network of Open vSwitch that is none of ours: made by its own tools, as somebody would who has never heard of us.

Three bridges in a row with numbers of their own choosing, and a host at either end that is connected to its switch and
to nothing else.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from click.testing import CliRunner

from sievenet import programs
from sievenet.cli.host import host
from sievenet.dataplane import namespaces
from tests.openflow.harness import unique_name

#: bridge → (datapath number, {port: device})
BRIDGES = {
    "left": (0xA1, {4: "left-mid", 9: "left-host"}),
    "middle": (0x2B, {3: "mid-left", 5: "mid-right"}),
    "right": (0x9C, {1: "right-mid", 2: "right-host"}),
}
CABLES = [("left-mid", "mid-left"), ("mid-right", "right-mid")]
HOSTS = {"left-host": "fd0f:2::a1", "right-host": "fd0f:2::9c"}


def sh(*words, text=None):
    done = subprocess.run(programs.command(*words), input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


class Foreign:
    """Use as a context manager; `tls` is (key, certificate, authority) of the switches."""

    def __init__(self, tls=None):
        self.tls = tls
        self.name = unique_name("svx")
        self.folder = Path(tempfile.mkdtemp(prefix="sv"))
        self._pids = []

    @property
    def switches(self):
        return f"{self.name}-sw"

    def host(self, device):
        return f"{self.name}-{device}"

    def __enter__(self):
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for program in ("ovs-vswitchd", "ovsdb-server"):
            with contextlib.suppress(OSError, ValueError):
                pid = int((self.folder / f"{program}.pid").read_text())
                os.kill(pid, signal.SIGKILL)
                while Path(f"/proc/{pid}").exists():
                    time.sleep(0.01)
        for name in (self.switches, *map(self.host, HOSTS)):
            subprocess.run(programs.command("ip", "netns", "del", name), capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def inside(self, namespace, *words, text=None):
        return sh("ip", "netns", "exec", namespace, *words, text=text)

    def vsctl(self, *words):
        return sh("ovs-vsctl", f"--db=unix:{self.folder}/db.sock", "--timeout=20", *words)

    def _build(self):
        for name in (self.switches, *map(self.host, HOSTS)):
            sh("ip", "netns", "add", name)
            self.inside(name, "ip", "link", "set", "lo", "up")
        for a, b in CABLES:
            self.inside(self.switches, "ip", "link", "add", a, "type", "veth", "peer", "name", b)
        for device in HOSTS:
            self.inside(self.switches, "ip", "link", "add", device, "type", "veth", "peer", "name", f"{device}-")
            self.inside(self.switches, "ip", "link", "set", f"{device}-", "netns", self.host(device), "name", "eth0")
        for _, ports in BRIDGES.values():
            for device in ports.values():
                self.inside(self.switches, "ip", "link", "set", device, "up")
        for device, address in HOSTS.items():
            said = CliRunner().invoke(host, ["--prepare", "eth0", "--address", address])
            self.inside(self.host(device), "ip", "-6", "-batch", "-", text=said.output)
            namespaces.no_checksum_offload(self.host(device), ["eth0"])
        self._start_switches()

    def _start_switches(self):
        folder = self.folder
        sh("ovsdb-tool", "create", f"{folder}/conf.db", "/usr/share/openvswitch/vswitch.ovsschema")
        common = ["--detach", "--no-chdir", "-vconsole:off"]
        with_run_dir = ["env", f"OVS_RUNDIR={folder}"]
        self.inside(
            self.switches,
            *with_run_dir,
            *("ovsdb-server", f"{folder}/conf.db", f"--remote=punix:{folder}/db.sock"),
            *("--private-key=db:Open_vSwitch,SSL,private_key", "--certificate=db:Open_vSwitch,SSL,certificate"),
            *("--ca-cert=db:Open_vSwitch,SSL,ca_cert", f"--pidfile={folder}/ovsdb-server.pid", *common),
        )
        self.vsctl("--no-wait", "init")
        if self.tls is not None:
            self.vsctl("--no-wait", "set-ssl", *map(str, self.tls))
        self.inside(
            self.switches,
            *with_run_dir,
            "ovs-vswitchd",
            f"unix:{folder}/db.sock",
            f"--pidfile={folder}/ovs-vswitchd.pid",
            *common,
        )
        for bridge, (datapath, ports) in BRIDGES.items():
            words = ["add-br", bridge, "--", "set", "Bridge", bridge, "datapath_type=netdev", "fail_mode=secure"]
            words += [f"other_config:datapath-id={datapath:016x}", "other_config:disable-in-band=true"]
            for port, device in ports.items():
                words += ["--", "add-port", bridge, device]
                words += ["--", "set", "Interface", device, f"ofport_request={port}"]
            self.vsctl(*words)

    def point_to(self, port, bridges=tuple(BRIDGES)):
        """Tell the switches where their controller is."""
        kind = "tcp" if self.tls is None else "ssl"
        words = []
        for bridge in bridges:
            words += ["--", "set-controller", bridge, f"{kind}:127.0.0.1:{port}"]
            words += ["--", "set", "Controller", bridge, "max_backoff=1000"]
        self.vsctl(*words[1:])


def certificates(folder):
    """An authority, and what it has signed for a controller and for switches."""
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    sh(*make, "-keyout", f"{folder}/ca.key", "-out", f"{folder}/ca.pem", "-days", "2", "-subj", "/CN=authority")
    for name in ("controller", "switch"):
        ask = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        sh(*ask, "-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.csr", "-subj", f"/CN={name}")
        sign = ["openssl", "x509", "-req", "-in", f"{folder}/{name}.csr", "-CA", f"{folder}/ca.pem"]
        sh(*sign, "-CAkey", f"{folder}/ca.key", "-CAcreateserial", "-days", "2", "-out", f"{folder}/{name}.pem")
