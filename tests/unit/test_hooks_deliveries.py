"""One try of a webhook and of a command, and what the desk and its store make of many."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, FleetIncarnation, SetKey
from rollcall_ha.deploy.local.processes import wait_until
from rollcall_ha.hooks import __main__ as program
from rollcall_ha.hooks.commands import Command
from rollcall_ha.hooks.desk import DELIVERED, Desk, Outcome, pause_ms
from rollcall_ha.hooks.following import Cursor
from rollcall_ha.hooks.notices import Kind, Notice, TrialTold
from rollcall_ha.hooks.settings import HookSection, Limits, load
from rollcall_ha.hooks.store import FILE_NAME, Store, Waiting
from rollcall_ha.hooks.webhook import Webhook, signature
from rollcall_ha.node.files import DirectoryError
from tests.support.hook_files import command, write_hooks

FAILED = Outcome(is_delivered=False, reason="HTTP 500")
CURSOR = Cursor(fleet=FleetIncarnation("f" * 32), index=7, ordinal=0, chain="0" * 64)
LIMITS = Limits(first_pause_ms=100, pause_ms_max=1_000, tries_max=4, age_s_max=60)


def notice(number: int, of_set: str = "a") -> Notice:
    return Notice(
        id=f"f.{number}.0.master-elected",
        type="master-elected",
        kind=Kind.ELECTIONS,
        fleet_incarnation=FleetIncarnation("f" * 32),
        set_key=SetKey(ClusterName("c"), BrokerName(of_set)),
        stamped_at_ms=number,
        event=None,
        data=TrialTold(text=""),
    )


def hook(name: str = "pager", **values: Any) -> HookSection:
    base: dict[str, Any] = {"name": name, "kinds": (Kind.ELECTIONS,), "url": "https://pager.example/x"}
    return HookSection(**{**base, **values})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = Store.open(tmp_path)
    yield found
    found.close()


def desk_of(store: Store, *hooks: HookSection, limits: Limits = LIMITS) -> Desk:
    return Desk(store, hooks or (hook(),), limits, draw=lambda: 1.0, now_ms=0)


def enqueue(store: Store, *numbers: int, of_set: str = "a", to: str = "pager", now_ms: int = 0) -> None:
    store.take(CURSOR, {}, [(to, notice(number, of_set)) for number in numbers], now_ms=now_ms)


def taken(desk: Desk, now_ms: int) -> list[Waiting]:
    desk.look(now_ms)
    return desk.take(now_ms)


def index_of(one: Waiting) -> int:
    return int(one.id.split(".")[1])


# --- webhooks --------------------------------------------------------------------------------------------------------


def test_the_signature_is_that_of_standard_webhooks() -> None:
    """The specification's: base64 of HMAC-SHA256 over id, timestamp and body, which dots join."""
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    found = signature("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body, (secret,))
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    both = signature("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body, (secret, bytes(32)))
    assert [one[:3] for one in both.split(" ")] == ["v1,", "v1,"]
    assert both.split(" ")[0] == found


def tried(handler: Callable[[httpx.Request], httpx.Response], **values: Any) -> tuple[Outcome, list[httpx.Request]]:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return handler(request)

    async def life() -> Outcome:
        sender = Webhook(
            hook(**values),
            (bytes(32),),
            context=None,
            now_s=lambda: 1_700_000_000.9,
            transport=httpx.MockTransport(answer),
        )
        try:
            return await sender.deliver("f.1.0.master-elected", "master-elected", b'{"id":1}')
        finally:
            await sender.close()

    return asyncio.run(life()), seen


def test_a_delivery_has_the_three_headers_and_a_signature_that_its_receiver_can_check() -> None:
    outcome, (request,) = tried(lambda _: httpx.Response(204))
    assert outcome == DELIVERED
    assert request.headers["webhook-id"] == "f.1.0.master-elected"
    assert request.headers["webhook-timestamp"] == "1700000000"
    signed = b"f.1.0.master-elected.1700000000." + request.content
    expected = base64.b64encode(hmac.new(bytes(32), signed, hashlib.sha256).digest()).decode()
    assert request.headers["webhook-signature"] == f"v1,{expected}"


@pytest.mark.parametrize("status", [301, 307, 400, 404, 410, 500, 503])
def test_anything_but_2xx_is_no_delivery_and_no_redirect_is_followed(status: int) -> None:
    outcome, seen = tried(lambda _: httpx.Response(status, headers={"location": "https://evil.example/"}, text="no"))
    assert not outcome.is_delivered
    assert outcome.reason == f"HTTP {status} no"
    assert len(seen) == 1


def test_a_receiver_that_asks_for_a_pause_gets_it() -> None:
    outcome, _ = tried(lambda _: httpx.Response(429, headers={"retry-after": "7"}))
    assert outcome.retry_after_ms == 7_000
    outcome, _ = tried(lambda _: httpx.Response(429, headers={"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}))
    assert outcome.retry_after_ms == 0


def test_a_receiver_that_cannot_be_reached_or_hangs_is_a_failure_with_its_reason() -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused")

    outcome, _ = tried(refuse)
    assert outcome.reason == "ConnectError: connection refused"

    async def hang() -> Outcome:
        async def never(request: httpx.Request) -> httpx.Response:
            await asyncio.Event().wait()
            raise AssertionError(request)

        sender = Webhook(
            hook(timeout_ms=100), (bytes(32),), context=None, now_s=lambda: 0.0, transport=httpx.MockTransport(never)
        )
        return await sender.deliver("1", "test", b"{}")

    assert asyncio.run(hang()).reason == "no answer within 100 ms"


# --- commands --------------------------------------------------------------------------------------------------------


def ran(*argv: str, timeout_ms: int = 30_000) -> Outcome:
    section = HookSection(name="vip", kinds=(Kind.ELECTIONS,), command=argv, timeout_ms=timeout_ms)
    return asyncio.run(Command(section).deliver("f.1.0.test", "test", b'{"id":"f.1.0.test"}\n'))


def test_a_command_has_the_event_on_its_input_and_nothing_of_our_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLCALL_TOKEN", "secret")
    out = tmp_path / "out"
    outcome = ran("/bin/sh", "-c", f"cat > {out}; env >> {out}; pwd >> {out}")
    assert outcome == DELIVERED
    lines = out.read_text().splitlines()
    assert lines[0] == '{"id":"f.1.0.test"}'
    assert "ROLLCALL_EVENT_TYPE=test" in lines
    assert lines[-1] == "/"
    assert not any("secret" in line for line in lines)


def test_a_command_that_fails_says_why_with_the_end_of_its_output() -> None:
    outcome = ran("/bin/sh", "-c", "yes x | head -c 100000; echo no such address >&2; exit 7")
    assert not outcome.is_delivered
    assert outcome.reason.startswith("exit code 7: ")
    assert outcome.reason.endswith("no such address")
    assert len(outcome.reason) < 400


@pytest.mark.slow
@pytest.mark.parametrize("script", ["sleep 1000", "yes", "sleep 1000 & sleep 1000"])
def test_a_command_that_does_not_end_is_killed_with_all_that_it_started(script: str, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    outcome = ran("/bin/sh", "-c", f"echo $$ > {pid}; {script}", timeout_ms=500)
    assert outcome.reason.startswith("killed after 500 ms")
    group = int(pid.read_text())
    wait_until(lambda: living(group) == [], deadline_s=30, what="the whole group to be gone")


def living(group: int) -> list[int]:
    """Processes of a group that still run; killed ones may wait to be reaped by somebody else."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def test_a_command_that_leaves_a_daemon_behind_has_ended() -> None:
    """It holds the output open for ever; the command is over."""
    assert ran("/bin/sh", "-c", "sleep 5 & exit 0", timeout_ms=4_000) == DELIVERED


def test_a_command_that_leaves_a_child_behind_that_prints_has_ended() -> None:
    """It was listened to for ever, and its set stood."""
    assert ran("/bin/sh", "-c", "timeout 3 yes & exit 0", timeout_ms=500) == DELIVERED


def test_a_program_that_is_not_there_is_a_failure() -> None:
    assert "cannot be started" in ran("/nowhere/at/all").reason


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
@pytest.mark.root
def test_a_command_runs_as_its_user_with_that_users_groups_alone() -> None:
    section = HookSection(name="a", kinds=(Kind.WRITES,), command=("/bin/sh", "-c", "id; exit 1"), user="nobody")
    reason = asyncio.run(Command(section).deliver("1", "test", b"{}")).reason
    assert "(nobody)" in reason
    assert "root" not in reason


# --- the desk and its store ------------------------------------------------------------------------------------------


def test_one_set_is_delivered_in_order_and_a_failing_one_holds_up_no_other(store: Store) -> None:
    enqueue(store, 1, 3)
    enqueue(store, 2, 4, of_set="b")
    desk = desk_of(store)
    first = taken(desk, 0)
    assert [index_of(one) for one in first] == [1, 2]
    assert desk.take(0) == []
    desk.settle([(first[0], FAILED), (first[1], DELIVERED)], 0)
    (after,) = taken(desk, 0)
    assert index_of(after) == 4
    desk.settle([(after, DELIVERED)], 0)
    assert taken(desk, 99) == []
    (again,) = taken(desk, 100)
    assert (index_of(again), again.tries) == (1, 1)


def test_pauses_double_up_to_their_limit_and_half_of_each_is_drawn() -> None:
    assert [pause_ms(tries, LIMITS, lambda: 1.0) for tries in (1, 2, 3, 4, 5, 1_000)] == [
        100, 200, 400, 800, 1_000, 1_000,
    ]  # fmt: skip
    assert pause_ms(3, LIMITS, lambda: 0.0) == 200


def test_a_receivers_wish_counts_up_to_the_longest_pause(store: Store) -> None:
    enqueue(store, 1)
    desk = desk_of(store)
    desk.settle([(taken(desk, 0)[0], Outcome(is_delivered=False, reason="", retry_after_ms=900_000))], 0)
    assert desk.next_due_ms() == LIMITS.pause_ms_max


def test_after_the_last_try_a_delivery_is_a_dead_letter_and_the_next_one_goes(store: Store) -> None:
    enqueue(store, 1, 2)
    desk, now_ms = desk_of(store), 0
    for _ in range(LIMITS.tries_max):
        (one,) = taken(desk, now_ms)
        assert index_of(one) == 1
        desk.settle([(one, FAILED)], now_ms)
        now_ms += LIMITS.pause_ms_max
    assert [index_of(one) for one in taken(desk, now_ms)] == [2]
    (dead,) = store.dead_letters(limit=10)
    assert (dead.tries, dead.reason, dead.set_key) == (LIMITS.tries_max, "HTTP 500", "c/a")


def test_a_delivery_that_is_too_old_is_given_up_after_one_more_try(store: Store) -> None:
    enqueue(store, 1)
    desk = desk_of(store)
    (one,) = taken(desk, 60_000)
    desk.settle([(one, FAILED)], 60_000)
    assert len(store.dead_letters(limit=10)) == 1


def test_a_dead_letter_that_is_retried_goes_behind_what_waits_and_has_all_its_tries(store: Store) -> None:
    enqueue(store, 1)
    desk = desk_of(store, limits=Limits(tries_max=1))
    desk.settle([(taken(desk, 0)[0], FAILED)], 0)
    enqueue(store, 2)
    guest = store
    assert guest.retry("f.9.0.nothing", ["pager"], now_ms=5) == 0
    assert guest.retry(None, ["another"], now_ms=5) == 0
    assert guest.retry("f.1.0.master-elected", ["pager"], now_ms=5) == 1
    assert store.dead_letters(limit=10) == []
    (one,) = taken(desk, 10)
    assert index_of(one) == 2
    desk.settle([(one, DELIVERED)], 10)
    (again,) = taken(desk, 10)
    assert (index_of(again), again.tries, again.born_ms) == (1, 0, 5)


def test_a_set_that_is_never_taken_does_not_fill_the_rest(store: Store) -> None:
    limits = Limits(lane_waiting_max=10, waiting_max=100)
    enqueue(store, *range(1, 31))
    desk = desk_of(store, limits=limits)
    assert desk.waiting == {"pager": 10}
    assert not desk.is_full
    assert [index_of(one) for one in taken(desk, 0)] == [1]
    assert len(store.dead_letters(limit=100)) == 20
    assert "more than 10 waited" in store.dead_letters(limit=1)[0].reason


def test_what_waits_is_bounded_and_so_are_dead_letters(store: Store) -> None:
    limits = Limits(waiting_max=100, tries_max=1, dead_letters_max=10)
    for number in range(100):
        enqueue(store, number, of_set=f"s{number}")
    desk = desk_of(store, hook(at_a_time=64), limits=limits)
    was_full = desk.is_full
    for _ in range(2):
        desk.settle([(one, FAILED) for one in taken(desk, 0)], 0)
    assert (was_full, desk.is_full) == (True, False)
    assert len(store.dead_letters(limit=1_000)) == 10


def test_a_hook_delivers_so_many_sets_at_a_time_and_no_more(store: Store) -> None:
    for number in range(10):
        enqueue(store, number, of_set=f"s{number}")
    desk = desk_of(store, hook(at_a_time=3))
    out = taken(desk, 0)
    assert len(out) == 3
    assert desk.next_due_ms() is None
    desk.settle([(out[0], DELIVERED)], 0)
    assert len(taken(desk, 0)) == 1


def test_what_waited_for_a_hook_that_is_no_more_is_kept_as_dead(store: Store) -> None:
    enqueue(store, 1, to="gone")
    desk = desk_of(store)
    assert taken(desk, 0) == []
    assert "no such hook" in store.dead_letters(limit=1)[0].reason


def test_the_file_is_the_owners_alone_and_of_one_version(tmp_path: Path, store: Store) -> None:
    file = tmp_path / FILE_NAME
    enqueue(store, 1)
    for each in tmp_path.iterdir():
        assert each.stat().st_mode & 0o077 == 0, each
    with sqlite3.connect(file) as link:
        link.execute("PRAGMA user_version = 2")
    link.close()
    with pytest.raises(DirectoryError, match="version 2, this program reads version 1"):
        Store.visit(tmp_path)


def test_a_guest_that_comes_while_the_file_is_made_makes_no_tables(tmp_path: Path) -> None:
    """Both made them, and the process that owns them ended with "table meta already exists"."""
    (tmp_path / FILE_NAME).touch()
    with pytest.raises(DirectoryError, match="is being made"):
        Store.visit(tmp_path)
    Store.open(tmp_path).close()


def test_the_verbs_show_dead_letters_and_let_them_wait_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_hooks(tmp_path, command("pager", "/bin/true"))
    folder = load(file).path("hooks-data")
    folder.mkdir()
    store = Store.open(folder)
    enqueue(store, 1)
    desk = desk_of(store, limits=Limits(tries_max=1))
    desk.settle([(taken(desk, 0)[0], Outcome(is_delivered=False, reason="HTTP 500 \x1b[2J"))], 0)

    assert program.main(["dead-letters", "--file", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "f.1.0.master-elected  pager  c/a  1 tries: HTTP 500 ?[2J" in shown
    assert program.main(["retry", "--file", str(file)]) == 2
    assert program.main(["retry", "--file", str(file), "nothing"]) == 1
    assert program.main(["retry", "--file", str(file), "--all"]) == 0
    assert [index_of(one) for one in taken(desk, 10**15)] == [1]
    store.close()
