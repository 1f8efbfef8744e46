"""What is judged of producers and groups that share topics: books beside the log."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import msgspec

from rollcall_ha.broker.log.record import Draft
from rollcall_ha.deploy.local.ledger import LEDGER_FILE_NAME, Line
from tests.interop_java.books import CONSUMED_FILE_NAME, Books
from tests.interop_java.differences import pauses, promises
from tests.interop_java.groups import PROMISED, SCHEDULE_TOPIC, Group, Shared
from tests.interop_java.keys import SHARDS, body_of, digest_of
from tests.interop_java.story import KILL, Strike
from tests.support.log_tools import append_all, draft, open_log, settle

TOPIC, ORDERED = "ours", "ours-ordered"
SECOND_NS = 1_000_000_000
BORN_MS = 1_700_000_000_000


class World:
    """One producer, one group of each topic, and a log."""

    def __init__(self, folder: Path, producer: str = "java") -> None:
        self.folder = folder
        books = Books(folder / producer)
        books.directory.mkdir()
        self.ledger = books.directory / LEDGER_FILE_NAME
        plain = Group(folder / "plain", TOPIC, refuses=True, buries=True)
        ordered = Group(folder / "in-order", ORDERED, refuses=False, buries=False)
        self.shared = Shared(producers={producer: books}, topics={False: TOPIC, True: ORDERED}, groups=[plain, ordered])
        self.log = open_log(folder / "log")
        self.offsets: dict[str, int] = {}

    def stored(self, key: str, topic: str = TOPIC, *, waited_ms: int = 0, properties: str = "") -> int:
        """Its queue offset; all in queue 0."""
        record = draft(topic=topic.encode(), properties=f"KEYS\x01{key}\x02{properties}".encode())
        record.born_at_ms = BORN_MS + 1 - waited_ms
        append_all(self.log, record)
        self.offsets[topic] = self.offsets.get(topic, -1) + 1
        return self.offsets[topic]

    def acked(self, key: str, offset: int = 0, topic: str = TOPIC) -> None:
        line = Line(
            key=key, set="s", topic=topic, queue_id=0, queue_offset=offset, physical_offset=0, body_sha256="", acked_at_ns=1
        )  # fmt: skip
        with self.ledger.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")

    def taken(self, key: str, offset: int = 0, topic: str = TOPIC, *, at_s: int = 1, is_taken: int = 1) -> None:
        folder = self.folder / ("in-order" if "shard" in key else "plain")
        folder.mkdir(exist_ok=True)
        with (folder / CONSUMED_FILE_NAME).open("a") as file:
            digest = digest_of(body_of(key))
            file.write(f"{key}\t{digest}\t{at_s * SECOND_NS}\t{topic}\t0\t{offset}\t0\t{is_taken}\n")

    def counts(self, *faults_s: int) -> dict[str, int]:
        settle(self.log)
        assert self.shared.log.read(self.folder / "log")
        return self.shared.counts([at_s * SECOND_NS for at_s in faults_s])


def key(kind: str, number: int = 1, producer: str = "java") -> str:
    return f"{producer}-{kind}-run-{number:012x}"


def test_what_a_group_neither_took_nor_buried_is_lost(tmp_path: Path) -> None:
    """A refusal is no end; a dead letter of another group is not this one's."""
    world = World(tmp_path)
    for number, kind in enumerate(("plain", "again1", "dead")):
        world.acked(key(kind), world.stored(key(kind)))
        world.taken(key(kind), number, is_taken=0)
    world.stored(key("dead"), "%DLQ%other")

    assert world.counts()["lost"] == 3

    world.taken(key("plain"))
    world.taken(key("again1"), world.stored(key("again1"), "%RETRY%plain"), "%RETRY%plain")
    world.stored(key("dead"), "%DLQ%plain")
    counts = world.counts()

    assert (counts["lost"], counts["retried"], counts["dead_lettered"], counts["refused"]) == (0, 1, 1, 3)
    assert counts["duplicates"] == counts["unexplained"] == counts["misplaced"] == 0


def test_a_message_that_comes_again_without_a_fault_is_not_explained(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.acked(key("plain"), world.stored(key("plain")))
    world.taken(key("plain"), at_s=100)
    world.taken(key("plain"), at_s=200)

    assert world.counts(10, 201)["unexplained"] == 1
    assert world.counts(150)["given_again"] == 1
    assert world.counts(90)["duplicates"] == 1


def test_two_places_of_the_log_explain_a_message_that_comes_twice(tmp_path: Path) -> None:
    """Its producer sent it twice, or it was given back twice; a place that the log has not is nobody's word."""
    world = World(tmp_path)
    for kind, topic in (("plain", TOPIC), ("again1", "%RETRY%plain")):
        world.acked(key(kind), world.stored(key(kind)))
        for _ in range(2):
            world.taken(key(kind), world.stored(key(kind), topic), topic)
    counts = world.counts()

    assert (counts["sent_twice"], counts["given_back_twice"], counts["unexplained"]) == (1, 1, 0)

    world.taken(key("plain"), 99)

    assert world.counts()["unexplained"] == 1


def test_a_numbered_message_that_is_in_the_log_twice_fails(tmp_path: Path) -> None:
    world = World(tmp_path, "python")
    for kind in ("plain", "late1"):
        own = key(kind, producer="python")
        world.acked(own, world.stored(own, waited_ms=1_000))
    world.stored(key("plain", producer="python"))

    assert world.counts()["numbered_doubled"] == 1

    for _ in range(2):
        world.stored(key("late1", producer="python"), SCHEDULE_TOPIC, properties=f"REAL_TOPIC\x01{TOPIC}\x02")

    assert world.counts()["numbered_doubled"] == 2


def test_a_delayed_message_that_is_delivered_early_or_twice_fails(tmp_path: Path) -> None:
    """A millisecond is early; a wait for the way back to a group is no wait of its producer's."""
    world = World(tmp_path)
    for number, waited_ms in enumerate((999, 1_000)):
        late = key("late1", number)
        world.acked(late)
        world.stored(late, SCHEDULE_TOPIC, properties=f"REAL_TOPIC\x01{TOPIC}\x02")
        world.stored(late, SCHEDULE_TOPIC, properties="REAL_TOPIC\x01%RETRY%plain\x02")
        world.stored(late, waited_ms=waited_ms)
    counts = world.counts()
    assert (counts["delayed"], counts["delayed_early"], counts["delayed_doubled"]) == (2, 1, 0)

    world.stored(key("late1"), waited_ms=5_000)

    assert world.counts()["delayed_doubled"] == 1


def test_first_deliveries_of_a_sharding_key_that_change_places_fail(tmp_path: Path) -> None:
    """One that comes again may come late, and so may one that nobody acknowledged."""
    world = World(tmp_path)
    for number in (1, 2, 4, 5):
        world.acked(key("shard0", number), world.stored(key("shard0", number), ORDERED), ORDERED)
    for number in (1, 2, 1, 4, 3):
        world.taken(key("shard0", number), number - 1, ORDERED, at_s=number)
    world.acked(key("shard1", 2), world.stored(key("shard1", 2), ORDERED), ORDERED)
    world.taken(key("shard1", 2), 4, ORDERED)
    counts = world.counts(1)

    assert (counts["out_of_order"], counts["ordered_keys"], counts["lost"]) == (0, 2, 1)

    world.taken(key("shard0", 5), 3, ORDERED)
    world.acked(key("shard0", 3), world.stored(key("shard0", 3), ORDERED), ORDERED)

    assert world.counts(1)["out_of_order"] == 1


def test_a_run_in_which_something_never_happened_fails(tmp_path: Path) -> None:
    """Zero dead letters, delays, retries or sharding keys would prove nothing."""
    world = World(tmp_path)
    world.acked(key("plain"), world.stored(key("plain")))
    world.taken(key("plain"))

    world.counts()
    wrong = world.shared.absent()

    assert "plain took nothing of the kind again" in wrong
    assert "plain took nothing of the kind late" in wrong
    assert "plain has no dead letter" in wrong
    assert f"in-order saw 0 sharding keys instead of {SHARDS}" in wrong
    assert "java sent nothing of the kind shard" in wrong


def test_a_log_is_read_on_over_the_end_of_a_segment(tmp_path: Path) -> None:
    """What is not confirmed waits."""
    world = World(tmp_path)
    for number in range(200):
        world.stored(key("plain", number))
    settle(world.log)
    last = Draft(topic=TOPIC.encode(), queue_id=0, body=b"", properties=f"KEYS\x01{key('plain', 200)}\x02".encode())
    append_all(world.log, last)

    assert not world.shared.log.read(tmp_path / "log")
    assert len(list((tmp_path / "log" / "commitlog").iterdir())) > 1
    assert len(world.shared.log.places[TOPIC]) == 200

    settle(world.log)

    assert world.shared.log.read(tmp_path / "log")
    assert world.shared.log.places[TOPIC][key("plain", 200)] == [(TOPIC, 0, 200)]


def test_a_log_without_a_confirm_offset_is_read_to_the_end_that_its_broker_tells(tmp_path: Path) -> None:
    """RocketMQ's brokers write down seldom what is confirmed."""
    world = World(tmp_path)
    world.stored(key("plain"))
    first_end = world.log.max_offset
    world.stored(key("plain", 2))

    assert not world.shared.log.read(tmp_path / "log", first_end)
    assert list(world.shared.log.places[TOPIC]) == [key("plain")]

    assert world.shared.log.read(tmp_path / "log", world.log.max_offset)
    assert list(world.shared.log.places[TOPIC]) == [key("plain"), key("plain", 2)]


def test_a_delayed_message_that_comes_late_is_counted_and_is_no_failure(tmp_path: Path) -> None:
    """A second behind its time is late; the way back to a group has another time."""
    world = World(tmp_path)
    for number, waited_ms in enumerate((2_000, 2_001, 4_500)):
        world.acked(key("late1", number))
        world.stored(key("late1", number), waited_ms=waited_ms)
    world.stored(key("late1", 1), "%RETRY%plain", waited_ms=20_000)
    counts = world.counts()

    assert (counts["delayed_late"], counts["delayed_late_ms_max"], counts["delayed_early"]) == (2, 3_500, 0)
    assert not {"delayed_late", "delayed_late_ms_max"} & set(PROMISED)


def test_a_dead_letter_that_is_missing_is_told_apart_from_what_no_group_was_given(tmp_path: Path) -> None:
    """One that is not where its producer was told is counted, whether it is given or not."""
    world = World(tmp_path)
    for number, kind in enumerate(("plain", "dead")):
        world.acked(key(kind), world.stored(key(kind)) + number)
    counts = world.counts()

    assert (counts["lost"], counts["unburied"], counts["misplaced"]) == (2, 1, 1)
    assert {"lost", "misplaced"} <= set(PROMISED)


def test_the_tables_of_differences_have_a_column_for_each_side_and_a_row_for_each_client() -> None:
    strikes = [
        Strike(number=number, kind=KILL, victim="b1", at_ns=0, epoch_before=1, gaps={"java-producer": gap_s, "go-push": math.nan})
        for number, gap_s in enumerate((1.0, 3.0, 8.0))
    ]  # fmt: skip
    counts = Counter[str](acked=1_000, misplaced=3)

    promised = promises({"ours": counts, "theirs": Counter[str]()}).splitlines()
    assert promised[0] == "| promise | ours | theirs |"
    assert "| acknowledged | 1,000 | 0 |" in promised
    assert any(line.endswith("| 3 of 1,000 | 0 of 0 |") for line in promised)

    assert pauses({"ours": strikes, "theirs": strikes[:1]}).splitlines()[2:] == [
        "| java-producer | 3.0/8.0, 1.0/1.0 | -, - | -, - | -, - |",
        "| go-push | -, - | -, - | -, - | -, - |",
    ]
