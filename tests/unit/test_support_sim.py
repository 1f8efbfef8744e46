"""The ground of the simulation keeps its own promises: order, prefixes, loss of what was not synced, equal traces."""

from __future__ import annotations

from functools import partial

from tests.support.sim_disk import SimDisk
from tests.support.sim_kernel import SECOND, Host, Kernel, Process
from tests.support.sim_net import End, SimNet


def connected(net: SimNet, client: Process, server: Process) -> tuple[End, End]:
    ends: list[End] = []
    net.listen(server, "server:1", ends.append)
    net.connect(client, "server:1", server.host.name, ends.append, lambda: None)
    net.kernel.run_until(net.kernel.now_us + SECOND)

    assert len(ends) == 2
    return ends[1], ends[0]


def two_processes(seed: int) -> tuple[Kernel, SimNet, Process, Process]:
    kernel = Kernel(seed)
    return kernel, SimNet(kernel), Process(Host(kernel, "a"), "a"), Process(Host(kernel, "b"), "b")


def test_a_stream_keeps_its_order_whatever_the_weather() -> None:
    """What arrives is a prefix of what was sent, in order."""
    for seed in range(20):
        kernel, net, a, b = two_processes(seed)
        here, there = connected(net, a, b)
        net.weather.stall_probability, net.weather.break_probability = 0.2, 0.02
        heard: list[int] = []
        there.on_message = heard.append
        for number in range(40):
            kernel.after(number * 1_000, "send", partial(here.send, number))
        kernel.run_until(100 * SECOND)

        assert heard == list(range(len(heard)))


def test_what_is_held_by_a_cut_arrives_after_it_is_healed() -> None:
    """A partition delays; only a break loses. A process that was killed behind a cut is noticed after it."""
    kernel, net, a, b = two_processes(1)
    here, there = connected(net, a, b)
    heard: list[str] = []
    there.on_message = heard.append
    there.on_closed = lambda: heard.append("closed")
    net.cut("a", "b")
    here.send("late")
    a.kill()
    kernel.run_until(10 * SECOND)

    assert heard == []
    net.heal("a", "b")
    kernel.run_until(20 * SECOND)

    assert heard == ["late", "closed"]


def test_a_paused_process_acts_when_it_wakes_and_a_dead_one_never() -> None:
    """Timers of a stopped process run at its resumption, those of a dead one do not."""
    kernel, _net, a, b = two_processes(1)
    ran: list[str] = []
    a.after(SECOND, "timer", lambda: ran.append("a"))
    b.after(SECOND, "timer", lambda: ran.append("b"))
    a.pause()
    b.kill()
    kernel.run_until(3 * SECOND)

    assert ran == []
    a.resume()
    kernel.run_until(3 * SECOND)

    assert ran == ["a"]


def test_power_loss_loses_only_what_was_not_synced() -> None:
    """The synced prefix always survives; over many tries the rest is lost whole, in part and not at all."""
    outcomes = set()
    for seed in range(60):
        disk = SimDisk(Kernel(seed), "d")
        disk.append("log", b"synced--")
        disk.sync("log")
        disk.append("log", b"first---")
        disk.append("log", b"second--")
        disk.lose_power()
        content = disk.read("log")
        outcomes.add(content)

        assert content.startswith(b"synced--")
    assert b"synced--" in outcomes
    assert b"synced--first---second--" in outcomes
    assert any(content[8:16] == bytes(8) for content in outcomes)


def test_a_cut_that_was_not_synced_may_come_undone() -> None:
    """S23: what was cut without a sync can be there again after a power loss."""
    found = set()
    for seed in range(40):
        disk = SimDisk(Kernel(seed), "d")
        disk.append("log", b"old tail")
        disk.sync("log")
        disk.truncate("log", 4)
        disk.lose_power()
        found.add(disk.read("log"))

    assert found == {b"old ", b"old tail"}
