"""
Journals for the lake's bench, made by Spark itself: as many failovers as are asked for, as lines of JSON.

Here: the story of one failover as 22 lines, the numbers in it by arithmetic. Not here: measuring (``lake``). Honest
histories with known truth come from ``tests.synthetic``, through the real core; it makes some thousand events
a second, this one some hundred thousand, and what is measured here is the reading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SETS = 20_000
FLAPPING_SHARE = 20
"""Every 20th failover strikes the one flapping set: 5 % of all events."""

DAYS = 30
BEGIN_MS = 1_767_225_600_000
FLEET = "f" * 32
MS_PER_DAY = 86_400_000

HEAD = (
    '{"version":1,"fleetIncarnation":"' + FLEET + '","term":7,"index":$index,"ordinal":$ordinal,"stampedAtMs":$stamp,'
    '"setKey":{"cluster":"bench","name":"broker-$set"},"requestId":"$index-r","requestedBy":"controller:c1","event":'
)
CHAIN = ',"chain":"'
TAIL = CHAIN + '"}'

CANDIDATE = (
    '{"brokerId":$id,"outcome":"$outcome","reason":"in SyncStateSet, alive, greatest (epoch, offset)","rank":$id,'
    '"isAlive":true,"isInSync":true,"lastEpoch":$epoch,"maxOffset":$offset,"priority":100,"heartbeatAgeMs":400,"zone":"",'
    '"kind":"native","isReady":true,"isLearner":false,"isSuspect":false,"isSetAside":false}'
)
CANDIDATES = ",".join(
    CANDIDATE.replace("$id", number).replace("$outcome", outcome)
    for number, outcome in (("$old", "excluded"), ("$new", "elected"), ("3", "eligible"))
)
DETECTION = (
    '{"cause":"$cause","lastHeartbeatAgeUs":$fault,"sessionClosedAgeUs":$fault,"linkClosedAgeUs":null,'
    '"probeRefusedAgeUs":null,"detectedAgeUs":$detected,"firstSignAgeUs":$fault}'
)


def _milestone(phase: str, elapsed: str, by: str, *, cut: str = "") -> str:
    reporter = "null" if by == "null" else by
    incarnation = "null" if by == "null" else f'"i-{by}"'
    return (
        f'{{"kind":"milestone-reached","milestone":{{"masterEpoch":$epoch,"phase":"{phase}","elapsedUs":{elapsed},'
        f'"brokerId":{reporter},"incarnation":{incarnation},"observedUs":$observed,"cutFrom":{cut or "null"},'
        f'"cutTo":{cut or "null"},"released":null}}}}'
    )


_ALTER = (
    '{"kind":"sync-state-set-altered","verdict":{"masterEpoch":$epoch,"seq":$seq,"isAccepted":true,"refusal":null,'
    '"syncStateSet":[1,2,3],"syncStateSetEpoch":$altered},"previousSet":[1,2],"digest":"d","boundIncarnations":[]}'
)
_GRADED = (
    '{"kind":"loss-graded","verdict":{"masterEpoch":$epoch,"grade":"proven","boundBytes":0,'
    '"facts":["ack mode all","the last master confirmed that mode, with confirm >= released"],"missing":[],"cutBytes":$cut}}'
)

_SILENT = (
    '{"kind":"replica-silent","brokerId":$old,"incarnation":"i-$old","sessionOrdinal":1,"cause":"$cause","detection":'
    + DETECTION
    + "}"
)
_ELECTED = (
    '{"kind":"master-elected","verdict":{"kind":"failover","winner":$new,"candidates":['
    + CANDIDATES
    + '],"policy":"preference-first@1","previousMaster":$old,"previousEpoch":$before,"masterEpoch":$epoch,'
    '"previousSet":[1,2,3],"syncStateSet":[$new,3],"previousSetEpoch":$earlier,"syncStateSetEpoch":$changed,'
    '"estimatedLossBytes":0,"designated":null},"master":$new,"masterIncarnation":"i-$new","masterEpoch":$epoch,'
    '"syncStateSet":[$new,3],"syncStateSetEpoch":$changed,"evidence":{"readAtIndex":$index,"masterEpoch":$before,'
    '"syncStateSetEpoch":$earlier,"replicas":[],"triggeredBy":null,"detection":null,"epochJumpDraw":0},'
    '"triggeredBy":{"term":7,"index":$silent,"ordinal":0},"detection":' + DETECTION + ',"reason":"gone",'
    '"boundIncarnations":[]}'
)
_ENTERED = (
    '{"kind":"master-entered","brokerId":$new,"incarnation":"i-$new","masterEpoch":$epoch,"startOffset":$offset,'
    '"ackedEndMax":$offset,"isModeConfirmed":true}'
)
_REGISTERED = (
    '{"kind":"replica-registered","brokerId":$old,"incarnation":"i-$old","sessionOrdinal":2,"bootId":"b","storeId":"s",'
    '"description":{"address":"10.0.0.1:9","haAddress":"10.0.0.1:8","kind":"native","zone":"","priority":100,'
    '"isLearner":false},"configuration":{"expectedReplicas":3,"ackMode":"all","minInSync":0,"flush":"async"},'
    '"positions":{"lastEpoch":$before,"maxOffset":$offset,"confirmOffset":$offset,"released":0},'
    '"intactness":"same-boot","intactnessReason":"same boot","syncStateSet":[$new,3],"syncStateSetEpoch":$changed,'
    '"awaitedReports":[],"stored":null,"isRecovering":false}'
)

STORY: tuple[str, ...] = (
    _SILENT,
    _ELECTED,
    _ENTERED,
    _GRADED.replace("$cut", "null"),
    _milestone("committed", "2000", "null"),
    _milestone("notified", "2500", "null"),
    *(_milestone("promised", "$jitter", by) for by in ("$new", "3", "$old")),
    *(_milestone("role-applied", "$jitter900", by) for by in ("$new", "3", "$old")),
    _milestone("serving", "$jitter950", "$new"),
    _milestone("first-ack", "$jitter9000", "$new"),
    _milestone("truncated", "300", "3"),
    _milestone("in-sync", "400", "3"),
    _REGISTERED,
    _milestone("truncated", "900", "$old", cut="$offset"),
    _GRADED.replace("$cut", "0"),
    _milestone("in-sync", "950", "$old"),
    _ALTER.replace("$seq", "1"),
    _milestone("full-redundancy", "2000000", "$new"),
)
EVENTS_PER_FAILOVER = len(STORY)


def lines(spark: SparkSession, events: int, *, tasks: int) -> DataFrame:
    """Column ``line``: about ``events`` lines, whole failovers only. The hash chain begins anew with each of them."""
    from pyspark.sql import functions as f

    failovers = spark.range(0, events // EVENTS_PER_FAILOVER, numPartitions=tasks)
    of_failover = failovers.select(*(column.alias(name) for name, column in _numbers(f.col("id"), events).items()))
    texts = [_text(HEAD + event + TAIL, place) for place, event in enumerate(STORY)]

    def hashed(told: Column, text: Column) -> Column:
        chain = f.sha2(f.concat(told["chain"], text).cast("binary"), 256)
        line = f.concat(f.substring_index(text, CHAIN, 1), f.lit(CHAIN), chain, f.lit('"}'))
        return f.struct(chain.alias("chain"), f.array_append(told["lines"], line).alias("lines"))

    nothing = f.struct(f.lit("").alias("chain"), f.array().cast("array<string>").alias("lines"))
    of_all = f.aggregate(f.array(*texts), nothing, hashed, lambda told: told["lines"])
    return of_failover.select(f.explode(of_all).alias("line"))


def _numbers(number: Column, events: int) -> dict[str, Column]:
    """Everything that differs between two failovers."""
    from pyspark.sql import functions as f

    is_flapping = number % FLAPPING_SHARE == 0
    quiet = number - f.floor(number / FLAPPING_SHARE) - 1
    of_set = f.when(is_flapping, f.floor(number / FLAPPING_SHARE)).otherwise(f.floor(quiet / (SETS - 1)))
    epoch = of_set + 1
    every_ms = DAYS * MS_PER_DAY / (events // EVENTS_PER_FAILOVER)
    noise = f.pmod(f.xxhash64(number), f.lit(1_000))
    return {
        "set": f.when(is_flapping, 0).otherwise(1 + quiet % (SETS - 1)),
        "epoch": epoch,
        "before": epoch - 1,
        "earlier": epoch * 2 - 1,
        "changed": epoch * 2,
        "altered": epoch * 2 + 1,
        "old": 1 + epoch % 2,
        "new": 2 - epoch % 2,
        "base": number * EVENTS_PER_FAILOVER,
        "silent": number * EVENTS_PER_FAILOVER,
        "begin": f.lit(BEGIN_MS) + f.floor(number * every_ms),
        "offset": epoch * 1_000_000,
        "cause": f.when(noise % 3 == 0, "timeout").otherwise("dead-at-once"),
        "fault": 3_000 + noise * 3_000,
        "detected": 1_000 + noise,
        "jitter": 1 + noise % 9,
        "observed": 60_000 + noise * 3_000,
    }


def _text(template: str, place: int) -> Column:
    """The template with its names filled in."""
    from pyspark.sql import functions as f

    values = {
        "index": f.col("base") + place,
        "ordinal": f.lit(0),
        "stamp": f.col("begin") + place * 20,
    }
    parts: list[Column] = []
    rest = template
    while "$" in rest:
        before, _, rest = rest.partition("$")
        name = "".join(_leading_letters(rest))
        rest = rest[len(name) :]
        parts += [f.lit(before), values.get(name, f.col(name)).cast("string")]
    return f.concat(*parts, f.lit(rest))


def _leading_letters(text: str) -> list[str]:
    letters = []
    for letter in text:
        if not letter.isalpha():
            break
        letters.append(letter)
    return letters
