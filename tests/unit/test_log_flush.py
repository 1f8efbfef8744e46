"""Group commit: rounds, requests, a failed sync, a full disk in a chore."""

from __future__ import annotations

import threading
from collections.abc import Callable

from rollcall_ha.broker.log.flush import GroupFlusher
from rollcall_ha.controller.contract.ids import FlushMode
from rollcall_ha.epoch.model import LogOffset

DEADLINE_S = 30.0


def make(
    sync: Callable[[], LogOffset],
    *,
    chores: Callable[[], None] = lambda: None,
    publish: Callable[[LogOffset], None] = lambda _flushed: None,
    stop: Callable[[BaseException], None] = lambda _error: None,
    on_due: Callable[[], None] | None = None,
) -> GroupFlusher:
    """In mode sync, so that only requests start rounds."""
    return GroupFlusher(
        mode=FlushMode.SYNC,
        interval_ms=60_000,
        prepare=lambda: None,
        sync=sync,
        chores=chores,
        publish=publish,
        stop_process=stop,
        on_due=on_due,
    )


def test_one_round_serves_everybody_who_asked_before_it() -> None:
    """However many requests wait, the loop hears of the end once."""
    entered, go_on, published = threading.Event(), threading.Event(), threading.Event()
    ends: list[int] = []
    target = [0]

    def sync() -> LogOffset:
        end = LogOffset(target[0])
        entered.set()
        assert go_on.wait(DEADLINE_S)
        return end

    def publish(flushed: LogOffset) -> None:
        ends.append(flushed)
        if flushed == 100:
            published.set()

    flusher = make(sync, publish=publish)
    flusher.start(LogOffset(0))
    target[0] = 1
    flusher.request(LogOffset(1))
    assert entered.wait(DEADLINE_S)
    for end in range(2, 101):
        target[0] = end
        flusher.request(LogOffset(end))
    go_on.set()
    assert published.wait(DEADLINE_S)
    flusher.stop()
    assert ends == [1, 100]


def test_a_cut_behind_a_sync_voids_what_the_sync_found() -> None:
    """
    Synced up to 900; before the thread has noted it, the log is cut to 500 and filled to 900 with the new master's
    bytes. Were 900 noted, the next sync would find nothing new, and the acks of those bytes would wait for ever.
    """
    published: list[int] = []

    def synced_then_cut() -> LogOffset:
        if flusher.rounds == 0:
            flusher.rewind(LogOffset(500))
        return LogOffset(900)

    flusher = make(synced_then_cut, publish=published.append, on_due=lambda: None)
    flusher.start(LogOffset(0))
    flusher.request(LogOffset(900))
    flusher.turn()

    assert published == []
    flusher.request(LogOffset(900))
    flusher.turn()
    assert published == [900]


def test_a_failed_sync_ends_the_process_and_publishes_nothing() -> None:
    """Rule 3: no second try, whatever is asked afterwards."""
    stopped = threading.Event()
    calls: list[int] = []
    errors: list[BaseException] = []

    def sync() -> LogOffset:
        calls.append(1)
        raise OSError(5, "Input/output error")

    def stop(error: BaseException) -> None:
        errors.append(error)
        stopped.set()

    flusher = make(sync, publish=lambda _flushed: errors.append(AssertionError("published")), stop=stop)
    flusher.start(LogOffset(0))
    flusher.request(LogOffset(10))
    assert stopped.wait(DEADLINE_S)
    flusher.request(LogOffset(20))
    flusher.stop()
    assert calls == [1]
    assert [type(each) for each in errors] == [OSError]


def test_a_full_disk_in_a_chore_is_reported_and_tried_again() -> None:
    """Rule 4: the next segment is not promised to anybody yet."""
    failed, worked = threading.Event(), threading.Event()

    def chores() -> None:
        if not failed.is_set():
            failed.set()
            raise OSError(28, "No space left on device")
        worked.set()

    flusher = make(lambda: LogOffset(0), chores=chores)
    flusher.start(LogOffset(0))
    flusher.request_chores()
    assert failed.wait(DEADLINE_S)
    flusher.request_chores()
    assert worked.wait(DEADLINE_S)
    flusher.stop()
    assert flusher.chore_error is None


def test_a_fault_in_a_chore_ends_the_process_too() -> None:
    """W36: anything but a full disk ended the thread alone, and nothing was synced any more, unseen."""
    stopped = threading.Event()
    faults: list[BaseException] = []

    def chores() -> None:
        raise ValueError("a fault of ours")

    def stop(error: BaseException) -> None:
        faults.append(error)
        stopped.set()

    flusher = make(lambda: LogOffset(1), chores=chores, stop=stop)
    flusher.start(LogOffset(0))
    flusher.request_chores()
    assert stopped.wait(DEADLINE_S)
    assert isinstance(faults[0], ValueError)
    flusher.stop()


def test_every_ack_of_a_set_that_syncs_waited_for_the_checkpoints_as_well() -> None:
    """Chores sync several small files; with a steady stream of requests one round per interval does them."""
    done: list[int] = []
    target = 0
    published = threading.Event()

    def publish(flushed: LogOffset) -> None:
        if flushed == target:
            published.set()

    flusher = make(lambda: LogOffset(target), chores=lambda: done.append(target), publish=publish)
    flusher.start(LogOffset(0))
    for target in range(1, 21):
        published.clear()
        flusher.request(LogOffset(target))
        assert published.wait(DEADLINE_S)
    flusher.stop()

    assert flusher.rounds == 20
    assert len(done) == 1


def test_an_owner_that_asks_for_a_round_behind_a_failed_sync_gets_none() -> None:
    """The next sync said yes without the pages of the failed one, and the checkpoint called them synced."""
    errors: list[BaseException] = []
    chores: list[int] = []
    results = iter([OSError(5, "Input/output error")])

    def sync() -> LogOffset:
        for error in results:
            raise error
        return LogOffset(900)

    flusher = make(sync, chores=lambda: chores.append(1), stop=errors.append, on_due=lambda: None)
    flusher.start(LogOffset(0))
    flusher.request(LogOffset(900))
    flusher.turn()
    flusher.request_chores()
    flusher.turn()

    assert [str(error) for error in errors] == ["[Errno 5] Input/output error"]
    assert chores == []
