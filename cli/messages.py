"""
``rollcall produce`` and ``rollcall consume``: messages from and to a shell.

Here: their arguments, and what is wrong with them. Not here: their options (``options``), sending and reading
(``messaging``).
"""

from __future__ import annotations

from typing import Annotated

import typer

from rollcall_ha.cli.options import BrokerOptions, ReadOptions, SendOptions, takes
from rollcall_ha.cli.output import CommandExit, fail, wrong_use


@takes("options", SendOptions)
@takes("where", BrokerOptions)
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Its name; a topic exists from its first message on.")],
    *,
    options: SendOptions,
    where: BrokerOptions,
) -> None:
    """
    Send lines of standard input as messages; wait for each ack.

    It ends at the first line that is not acknowledged: those behind it that were on their way are waited for, no more
    are read. The last line on standard error has the counts.

    Exit codes: 0 all are acknowledged; 1 one is not, and is not in the log; 4 no broker; 5 one may be in the log.
    """
    from rollcall_ha.cli import messaging

    properties = {"KEYS": options.key, "TAGS": options.tag, "DELAY": str(options.delay_level or "")}
    for one in options.properties or ():
        name, mark, value = one.partition("=")
        if not name or not mark or not value:
            raise fail(f"rollcall: --property {one!r} is not NAME=VALUE", CommandExit.WRONG_USE)
        properties[name] = value
    given = {name: value for name, value in properties.items() if value}
    messaging.produce(topic, given, options, where)


@takes("options", ReadOptions)
@takes("where", BrokerOptions)
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Its name.")],
    *,
    group: Annotated[str, typer.Option(help="Its members share the queues, and go on where it was.")],
    options: ReadOptions,
    where: BrokerOptions,
) -> None:
    """
    Print messages of a topic, at least once, in a group.

    What is printed is committed, every 5 s and at the end, by Ctrl-C as well. Order holds within a queue.

    Exit codes: 0 done, by Ctrl-C too; 1 refused, with the reason; 4 no controller answers; 5 not all is
    committed.
    """
    from rollcall_ha.cli import messaging

    if options.tags and options.sql:
        raise fail("rollcall: --filter and --sql exclude each other", CommandExit.WRONG_USE)
    with wrong_use(ValueError):
        messaging.check_form(options.form)
        start = messaging.decode_start(options.start)
    messaging.consume(topic, group, start, options, where)
