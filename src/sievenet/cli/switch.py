"""`sievenet switch`: this machine is one switch of a network, driven by a control plane elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import click

from sievenet.cli.fabric import duration, run
from sievenet.cli.logs import log_options
from sievenet.cli.output import json_option, show_json
from sievenet.cli.shutdown import stop_signal

__all__ = ["switch"]


@click.command()
@click.argument("name")
@click.option("--interfaces", required=True, metavar="DEVICES", help="Its ports in order, such as eth1,eth2.")
@click.option("--control", required=True, metavar="ADDRESS:PORT", help="Where the control plane listens for agents.")
@click.option("--keep", is_flag=True, help="Go on forwarding when this command ends, until the next agent takes over.")
@click.option(
    "--run-dir",
    type=click.Path(file_okay=False),
    help="Where its tables are kept while nobody runs this. Default: /run/sievenet/switch-NAME",
)
@click.option(
    "--login",
    envvar="SIEVENET_LOGIN",
    metavar="FILE",
    help="A component's login (`sievenet keys`), for a control plane with --access.",
)
@click.option("--for", "seconds", metavar="TIME", callback=duration, help="Stop after this time. Default: at Ctrl-C.")
@log_options
@json_option
def switch(
    name: str,
    interfaces: str,
    control: str,
    keep: bool,
    run_dir: str | None,
    login: str | None,
    seconds: float | None,
    as_json: bool,
) -> None:
    """Make this machine the switch NAME of a network.

    The Linux kernel forwards by content between the interfaces, as the control plane says that was started with
    `sievenet up --dataplane kernel --listen ADDRESS:PORT`. The interfaces are the ports of that switch in its topology:
    the first is port 1. Needs root.

    If this command is killed or loses the control plane the kernel goes on forwarding; the next one takes the switch
    over as it is. When it ends by itself it removes the switch, unless --keep is given: it tells the control plane,
    forwards until no more packets come (at most 3 s), and goes.

    \b
    Examples:
      $ sievenet switch s2 --interfaces eth1,eth2,eth3 --control 10.0.0.1:7402  # needs root and a control plane
    """
    run(_switch(name, interfaces, control, keep, None if run_dir is None else Path(run_dir), login, seconds, as_json))


async def _switch(
    name: str,
    interfaces: str,
    control: str,
    keep: bool,
    run_dir: Path | None,
    login: str | None,
    seconds: float | None,
    as_json: bool,
) -> None:
    from sievenet.access.login import load_login
    from sievenet.dataplane.kernel.agent import Agent
    from sievenet.dataplane.kernel.machine import Machine, interfaces_of
    from sievenet.errors import InvalidInput

    host, colon, port = control.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 0xFFFF:
        raise InvalidInput(expected="an address such as 10.0.0.1:7402", got=control, where="control")
    Machine.check()
    machine = Machine(name, interfaces_of(interfaces), run_dir=run_dir)
    with machine.claimed():
        machine.prepare()
        agent = Agent(machine, host.strip("[]"), int(port), login=None if login is None else load_login(login))
        stop = stop_signal()
        serving = asyncio.create_task(agent.run())
        stopping = asyncio.create_task(stop.wait())
        welcome = asyncio.create_task(agent.welcome.wait())
        try:
            await asyncio.wait((serving, stopping, welcome), timeout=seconds, return_when="FIRST_COMPLETED")
            if welcome.done():
                ports = list(machine.interfaces.values())
                if as_json:
                    show_json({"switch": name, "interfaces": ports})
                else:
                    click.echo(f"switch {name} forwards between {', '.join(ports)}")
            await asyncio.wait((serving, stopping), timeout=seconds, return_when="FIRST_COMPLETED")
            if serving.done():
                serving.result()
            elif not keep:
                await agent.leave()
        finally:
            for task in (serving, stopping, welcome):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task
            if keep:
                machine.close()
            else:
                machine.down()
