"""
Bronze: every event once, flat, with its line; every other text with the reason why it is no event.

Here: judging and flattening texts, dropping copies, all in column expressions. Not here: files (``lines``), the days
that a lake already holds, publishing (``jobs.layers``).

Rule 1: one parse gives the columns and the judgement. An unknown field stays in the line; a record of a newer schema
version is read by its known fields, because later versions only add fields.
Rule 2: texts are shuffled by (fleet, day, range of Raft indexes): copies of an event meet, and a huge day of one
fleet is many tasks, small days share one.
Rule 3: copies are neighbours after a sort and lose their lines there (no aggregate over wide rows): they are counted
only. Of copies that differ the published one stays, else the smallest text; the others are rejected with their line.
Rule 4: files are sorted by kind, phase, seq: a reader of a few kinds skips the pages of the others.
Rule 5: an event is hashed here, where its line and the one before it lie side by side: silver walks the chain without
lines. One whose predecessor is not beside it keeps what the hash is of.
"""

from __future__ import annotations

from enum import StrEnum
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from rollcall_ha.analytics import codes
from rollcall_ha.analytics.bronze.lines import BREAK, HOLE, is_blank
from rollcall_ha.analytics.bronze.schema import event_record_schema
from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS
from rollcall_ha.analytics.lake.tables import FLEET_CLUSTER, ORDINALS_PER_INDEX, set_id_of
from rollcall_ha.controller.core.verification import CHAIN_FIELD, HASH_DIGITS

INDEXES_PER_BUCKET = 1 << 18
"""Raft indexes of one fleet and day that are sorted together."""

INDEXES_BESIDE_BITS = 10
"""So long a range of them is held in memory, to look at neighbours; at its end a chain is not walked on (rule 5)."""

REJECTED_BUCKETS = 64
"""Rejected texts of one file are spread over so many tasks."""

INDEX_END = 1 << 43
"""``seq`` of any smaller index fits into 64 bits."""

STAMP_MS_END = 253_402_300_800_000
"""The year 10000: a later stamp has no date that Parquet, Spark and people agree on."""

CORRUPT = "_corrupt_record"
OPTIONS = {"columnNameOfCorruptRecord": CORRUPT}

HELD, END = "held", "end"
"""Fields around a text that is parsed (``_held``)."""

NAMES = ("cluster", "day", *BRONZE_EVENTS.key)
"""Columns by which copies of an event meet."""


class Why(StrEnum):
    """Why a text is no event."""

    NOT_A_RECORD = "not an event record"
    """Not JSON, cut off, a value of a wrong type, or one of the fields that name an event is missing."""
    TRAILING = "something follows the record on its line"
    VERSION = "schema version is not a positive number"
    RANGE = "a number that names the event is out of range"
    STAMP = "stamp is not a date"
    HOLE = "hole"
    """Not a fault of the file: the controller lacks these events, and says so."""
    BREAK = "the rest of a damaged compressed file"
    """The line holds the reader's error; the file's lines up to there were read."""
    DIFFERS = "differs from another copy of the same event"
    COPY = "a copy"
    """The event was met before; like the next one this line is counted, and not kept."""
    BLANK = "blank"


COUNTED = (Why.COPY.value, Why.BLANK.value)


def judged(pieces: DataFrame) -> DataFrame:
    """``lines.pieces`` as columns of ``BRONZE_EVENTS``, ``texts``, ``bucket``, ``is_old``, ``why`` (null: an event)."""
    line, read = f.col("line"), f.col("read")
    # Holes and breaks are remarks about a file: parsed, each would look like a record without fields.
    text = f.when(~line.startswith(HOLE) & ~line.startswith(BREAK), line)
    why = _why(line, read)
    # A rejected text gets no name. With one, a torn line that still shows index 7 would meet event 7 as its copy, and
    # one of the two would be dropped.
    flat = {name: f.when(why.isNull(), of) if name in NAMES else of for name, of in _columns(read[HELD]).items()}
    flat["cluster"] = f.coalesce(flat["cluster"], source_of())
    # One projection for all: Spark shares their common parts. A second projection would copy every line once more.
    return pieces.withColumn("read", f.from_json(_held(text), _held_schema(), OPTIONS)).select(
        *(of.alias(name) for name, of in flat.items()),
        "line",
        "source_file",
        "texts",
        f.lit(False).alias("is_old"),
        why.alias("why"),
        _bucket(flat["index"]).alias("bucket"),
    )


def _held(text: Column) -> Column:
    """
    The text as the first value of an object that has a second one.

    The parser stops after one value. ``{..7..}{..8..}`` on one line would be read as event 7, and event 8 would be lost
    without a word; inside an object the second brace is an error.
    """
    return f.concat(f.lit(f'{{"{HELD}":'), text, f.lit(f',"{END}":true}}'))


def _held_schema() -> StructType:
    fields = {HELD: event_record_schema(), END: BooleanType(), CORRUPT: StringType()}
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def source_of() -> Column:
    """Short name of ``source_file``: the partition of its rejected texts."""
    # Not ``lower``: its first call sets up the rules of all languages, which takes a second.
    return f.translate(f.hex(f.xxhash64("source_file")), "ABCDEF", "abcdef")


def _bucket(index: Column) -> Column:
    of_rejected = f.pmod(f.xxhash64("line"), f.lit(REJECTED_BUCKETS))
    return f.coalesce(f.floor(index / INDEXES_PER_BUCKET), of_rejected)


def merging(old: DataFrame, new: DataFrame) -> DataFrame:
    """
    Events that a lake holds, and further ones, as ``judged`` gives them: copies of the old are dropped, not the old.
    """
    both = old.withColumn("is_old", f.lit(True)).unionByName(new.withColumn("is_old", f.lit(False)))
    nothing = {"why": f.lit(None).cast("string"), "texts": f.lit(None).cast("int")}
    return both.withColumns(nothing | {"bucket": _bucket(f.col("index"))})


def once(rows: DataFrame) -> DataFrame:
    """Copies are marked; of copies that differ all but one are rejected. Events are hashed."""
    # The range comes first: two rows that differ in it are compared by one number.
    # ``is_old`` comes before the text: with two texts of event 7 the published one must win. By the text alone a second
    # run would exchange it, and silver of that day would change without a new event.
    beside = Window.partitionBy(f.shiftright("index", INDEXES_BESIDE_BITS), "fleet", "day", "bucket").orderBy(
        "index", "term", "ordinal", "cluster", f.col("is_old").desc(), "line", "source_file"
    )
    same = reduce(and_, (f.lag(name).over(beside) == f.col(name) for name in ("index", "term", "ordinal", "cluster")))
    is_event = f.col("why").isNull()
    marked = (
        rows.repartition("fleet", "day", "bucket")
        .withColumn("chain", _chain())
        .select(
            "*",
            (is_event & f.coalesce(same, f.lit(False))).alias("is_copy"),
            f.lag("line").over(beside).alias("previous_line"),
            f.lag("chain").over(beside).alias("previous_chain"),
        )
    )
    is_copy = f.col("is_copy")
    # A second text of one event is damage or a forgery: dropped like a copy, nobody would hear of it.
    differs = is_copy & (f.col("line") != f.col("previous_line"))
    blanked = _blanked()
    is_next = f.sha2(f.concat(f.col("previous_chain").cast("binary"), blanked), 256) == f.col("chain")
    hashed = marked.withColumn("continues", f.when(~is_copy & is_next, f.xxhash64("previous_chain")))
    is_loose = is_event & ~is_copy & f.col("continues").isNull()
    return hashed.withColumns(
        {
            "blanked": f.when(is_loose, blanked.cast("string")),
            "why": f.when(differs, Why.DIFFERS.value).when(is_copy, Why.COPY.value).otherwise(f.col("why")),
            # It leaves the day of the event that it claims to be: it lies with the rejected texts of its file.
            "cluster": f.when(is_copy, source_of()).otherwise(f.col("cluster")),
            "day": f.when(~is_copy, f.col("day")),
            "line": f.when(~is_copy | differs, f.col("line")),
        }
    ).drop("is_copy", "previous_line", "previous_chain")


def _chain() -> Column:
    """As ``controller.core.verification.link_of``, in columns; empty without a hash."""
    behind = _behind()
    return f.when(_is_hashed(behind), f.substring(behind, 1, HASH_DIGITS).cast("string")).otherwise("")


def _blanked() -> Column:
    """The line without its hash, in bytes: functions of texts count characters from their beginning."""
    line, behind = f.col("line").cast("binary"), _behind()
    head = f.substring(line, f.lit(1), f.octet_length(line) - f.octet_length(behind))
    tail = f.substring(behind, f.lit(HASH_DIGITS + 1), f.octet_length(behind))
    return f.when(_is_hashed(behind), f.concat(head, tail)).otherwise(line)


def _behind() -> Column:
    """The end of the line, from behind the last beginning of a hash on; all of the line if there is none."""
    return f.substring_index("line", CHAIN_FIELD.decode(), -1).cast("binary")


def _is_hashed(behind: Column) -> Column:
    # A line without the field begins with a brace, and ends behind none of its quotes.
    is_there = f.octet_length(behind) < f.octet_length("line")
    return is_there & (f.substring(behind, HASH_DIGITS + 1, 1) == f.lit(b'"'))


def kept(rows: DataFrame) -> DataFrame:
    """Without those that are only counted."""
    return rows.where(f.col("why").isNull() | ~f.col("why").isin(*COUNTED))


def _why(line: Column, read: Column) -> Column:
    record = read[HELD]
    named = [record[name] for name in ("version", "fleetIncarnation", "term", "index", "ordinal", "stampedAtMs")]
    # Version 12 may add a kind whose fields are unknown here; without these seven it cannot be ordered or compared.
    is_nameless = reduce(or_, (field.isNull() for field in named), record["event"]["kind"].isNull())
    # The last condition: text behind a record that goes on with the object around both (``{..7..},"x":1``) parses, too.
    is_whole = read[CORRUPT].isNull() & read[END].isNotNull() & f.rtrim(line).endswith("}")
    # A second parse, of damaged texts only, tells a good record with something behind it from a torn one.
    first = f.from_json(line, f"version bigint, {CORRUPT} string", OPTIONS)
    is_followed = read[END].isNull() & first[CORRUPT].isNull() & first["version"].isNotNull()
    # The order decides the reason that is shown: a torn line has no version, and "version" would hide the damage.
    return (
        f.when(is_blank(line), Why.BLANK.value)
        .when(line.startswith(HOLE), Why.HOLE.value)
        .when(line.startswith(BREAK), Why.BREAK.value)
        .when(~is_whole & is_followed, Why.TRAILING.value)
        .when(~is_whole | is_nameless, Why.NOT_A_RECORD.value)
        .when(record["version"] < 1, Why.VERSION.value)
        # An index of 2**50 would overflow ``seq``: the event would sort somewhere among events of years before.
        .when(
            ~record["index"].between(0, INDEX_END - 1)
            | ~record["ordinal"].between(0, ORDINALS_PER_INDEX - 1)
            | (record["term"] < 0),
            Why.RANGE.value,
        )
        # One stamp of the year 60000 would make a folder whose date no reader can parse: the whole table would fail.
        .when(~record["stampedAtMs"].between(0, STAMP_MS_END - 1), Why.STAMP.value)
    )


def _columns(record: Column) -> dict[str, Column]:
    """Columns of an event."""
    event, caller = record["event"], record["principal"]
    # The day is the entry's, not the file's or the reading's: two copies that came on different days must meet.
    stamp, name = record["stampedAtMs"], record["setKey"]["name"]
    cluster = f.coalesce(record["setKey"]["cluster"], f.lit(FLEET_CLUSTER))
    # The founding event names its fleet in its body only. Without the second place it would belong to fleet "", and
    # every chain would begin inside.
    fleet = f.coalesce(
        f.when(record["fleetIncarnation"] != "", record["fleetIncarnation"]), event["fleetIncarnation"], f.lit("")
    )
    return {
        "cluster": cluster,
        "day": f.to_date(f.timestamp_millis(stamp)),
        "fleet": fleet,
        "term": record["term"],
        "index": record["index"],
        "ordinal": record["ordinal"],
        "seq": seq_of(record),
        "stamped_at": f.timestamp_millis(stamp),
        "broker_set": name,
        "set_id": f.when(name.isNotNull(), set_id_of(fleet, cluster, name)),
        "kind": codes.code_of(event["kind"], codes.KINDS),
        "requested_by": record["requestedBy"],
        "caller": f.concat(caller["role"], f.lit(":"), caller["name"]),
        "proved_by": caller["provedBy"],
        "version": record["version"].try_cast("int"),
        **_facts(event),
        **_election(event),
        **_members(event),
        "controller": event["controller"],
    }


def seq_of(ref: Column) -> Column:
    """``seq`` of something with index and ordinal."""
    return ref["index"] * ORDINALS_PER_INDEX + ref["ordinal"]


def _facts(event: Column) -> dict[str, Column]:
    milestone, verdict, kind = event["milestone"], event["verdict"], event["kind"]
    incarnation = f.coalesce(event["masterIncarnation"], milestone["incarnation"], event["incarnation"])
    broker_id = (
        f.when(kind == "master-elected", event["master"])
        .when(kind == "milestone-reached", milestone["brokerId"])
        .otherwise(event["brokerId"])
    )
    # A goodbye has no detection, but it is the cause of the silence that it begins.
    cause = f.when(kind == "goodbye-said", f.lit(codes.CAUSES["goodbye"])).otherwise(
        codes.code_of(f.coalesce(event["cause"], event["detection"]["cause"], event["ended"]["cause"]), codes.CAUSES)
    )
    return {
        "master_epoch": f.when(
            kind != "election-failed",
            f.coalesce(event["masterEpoch"], milestone["masterEpoch"], verdict["masterEpoch"]),
        ),
        "broker_id": broker_id.try_cast("int"),
        "incarnation_hash": f.when(incarnation.isNotNull(), f.xxhash64(incarnation)),
        "phase": codes.code_of(milestone["phase"], codes.PHASES),
        "elapsed_us": milestone["elapsedUs"],
        "observed_us": milestone["observedUs"],
        "uncertainty_us": milestone["uncertaintyUs"],
        "cut_from": milestone["cutFrom"],
        "cut_to": milestone["cutTo"],
        "released": milestone["released"],
        "waited_us": milestone["waitedUs"],
        "is_cleaned": f.when(kind == "replicas-cleaned", f.size(event["remaining"]) == 0),
        "stop_reason": codes.code_of(f.when(kind == "writes-stopped", event["reason"]), codes.STOP_REASONS),
        "age_us": event["ageUs"],
        "stopped_us": event["stoppedUs"],
        "cause": cause,
        "grade": codes.code_of(verdict["grade"], codes.GRADES),
        "bound_bytes": verdict["boundBytes"],
        "cut_bytes": verdict["cutBytes"],
        "intactness": codes.code_of(event["intactness"], codes.INTACTNESS),
    }


def _election(event: Column) -> dict[str, Column]:
    verdict, detection = event["verdict"], event["detection"]
    is_election = event["kind"].isin("master-elected", "election-failed", "election-withheld")
    judged_ones = verdict["candidates"]
    eligible = f.filter(judged_ones, lambda one: one["outcome"].isin("elected", "eligible"))
    held = f.transform(
        eligible, lambda one: f.struct(one["lastEpoch"].alias("epoch"), one["maxOffset"].alias("offset"))
    )
    winner = f.filter(judged_ones, lambda one: one["outcome"] == "elected")
    # Compared as (epoch, offset): 9,000 bytes in epoch 4 are more than 12,000 in epoch 3, which epoch 4 may have cut.
    regret = f.greatest(f.lit(0).cast("bigint"), f.array_max(held)["offset"] - f.get(winner, f.lit(0))["maxOffset"])
    columns = {
        "election_kind": codes.code_of(verdict["kind"], codes.ELECTION_KINDS),
        "previous_master": verdict["previousMaster"].try_cast("int"),
        "previous_epoch": verdict["previousEpoch"],
        "triggered_seq": seq_of(event["triggeredBy"]),
        "candidates": f.size(judged_ones),
        "candidates_eligible": f.size(eligible),
        "regret_bytes": regret,
        "estimated_loss_bytes": verdict["estimatedLossBytes"],
        "policy": verdict["policy"],
    }
    return {name: f.when(is_election, column) for name, column in columns.items()} | {
        "fault_age_us": f.coalesce(detection["firstSignAgeUs"], event["ended"]["firstSignAgeUs"]),
        # Without stamps a living master was moved, or there was none: that begins with the proposal. But a master that
        # was lost without a stamp was lost at some time before it.
        "alive_age_us": f.coalesce(
            detection["aliveAgeUs"],
            f.when(detection.isNull() & ~verdict["kind"].isin("failover", "unclean"), f.lit(0).cast("bigint")),
        ),
        "detected_age_us": detection["detectedAgeUs"],
        "last_heartbeat_age_us": detection["lastHeartbeatAgeUs"],
    }


def _members(event: Column) -> dict[str, Column]:
    kind, verdict = event["kind"], event["verdict"]
    is_altered = (kind == "sync-state-set-altered") & verdict["isAccepted"]
    is_told = kind.isin("master-elected", "replica-registered", "replicas-cleaned", "set-imported")
    # The proposed set of a refused alter was never in force.
    members = f.when(is_altered, verdict["syncStateSet"]).when(is_told, event["syncStateSet"])
    return {
        "sync_state_set": members.try_cast("array<int>"),
        "sync_state_set_epoch": f.when(is_altered, verdict["syncStateSetEpoch"]).when(
            is_told, event["syncStateSetEpoch"]
        ),
        "is_accepted": f.when(kind.isin("sync-state-set-altered", "alter-refused"), verdict["isAccepted"]),
        **{
            name: f.coalesce(event["configuration"][field], event[field]).try_cast("int")
            for name, field in (("expected_replicas", "expectedReplicas"), ("min_in_sync", "minInSync"))
        },
    }
