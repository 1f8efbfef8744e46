"""
``make prove``: all that is long or drawn, part by part, each with a line in the ledger.

    python -m tests.prove [--parts NAME,NAME] [--seed N]
    python -m tests.prove --list
    python -m tests.prove --page

A part that failed does not stop the others. Its whole output is in out/prove/NAME.txt. Exit code: how many parts have failed.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.perf.machine import ROOT, describe
from tests.prove import ledger
from tests.prove.parts import PARTS, SEED, Part

OUTPUTS = ROOT / "out" / "prove"
GRACE_S = 60.0
"""For a part that was told to end, to stop its fleets."""
LOOK_S = 0.2


def run_command(
    command: Sequence[str], output: Path, seconds_max: float, clock: Callable[[], float] = time.monotonic
) -> int | None:
    """Show what it prints, and keep it; its exit code, or ``None`` if it had to be ended."""
    with output.open("wb") as written, output.open("rb") as shown:
        ends_at = clock() + seconds_max
        # A session of its own: all that it starts there can be ended with it. And what is run in the background of a shell
        # is born deaf to the keyboard: a part that hung was told to end, and went on.
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=written, stderr=subprocess.STDOUT, start_new_session=True,
            # Into a file a program prints by pages: for an hour nobody would see how far it is.
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 (no threads here)
        )  # fmt: skip
        told = False
        try:
            while process.poll() is None:
                time.sleep(LOOK_S)
                _show(shown.read())
                if clock() > ends_at:
                    # As from the keyboard first: that is what programs stop their fleets for.
                    os.killpg(process.pid, signal.SIGKILL if told else signal.SIGINT)
                    told, ends_at = True, clock() + GRACE_S
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
                process.wait()
        _show(shown.read())
    return None if told else process.returncode


def _show(text: bytes) -> None:
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


def prove(part: Part, seed: int) -> ledger.Proof:
    """Run one part."""
    for wanted in part.setup:
        subprocess.run(["deploy/setup.sh", *wanted.split()], cwd=ROOT, check=False)
    command = [sys.executable, *(word.replace(SEED, str(seed)) for word in part.command)]
    with tempfile.TemporaryDirectory() as directory:
        machine = describe(Path(directory))
    is_dirty = bool(_said("git", "status", "--porcelain", "--", ".", ":!tests/proofs.jsonl", ":!docs/proof.md"))
    output = OUTPUTS / f"{part.name}.txt"
    output.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    code = run_command(command, output, part.seconds_max)
    outcome, why, counts = ledger.judge(code, output.read_text(errors="replace"))
    return ledger.Proof(
        part=part.name, outcome=outcome, why=why, counts=counts, seconds=round(time.monotonic() - began, 1), seed=seed,
        is_dirty=is_dirty, java=_said("java", "-version").partition("\n")[0], machine=machine,
    )  # fmt: skip


def _said(*command: str) -> str:
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def chosen(names: str) -> list[Part]:
    """Parts in the order of the table; all without names. ``ValueError``: no part has such a name."""
    wanted = {name for name in names.replace(",", " ").split() if name}
    if unknown := wanted - {part.name for part in PARTS}:
        raise ValueError(f"no part {', '.join(sorted(unknown))}; there are {', '.join(part.name for part in PARTS)}")
    return [part for part in PARTS if not wanted or part.name in wanted]


def main(arguments: Sequence[str] | None = None) -> int:
    """The number of parts that have failed."""
    parser = argparse.ArgumentParser(prog="make prove", description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--parts", default="", help="names, with commas between; default: all")
    parser.add_argument("--seed", type=int, default=None, help="of what is drawn; default: a fresh one")
    parser.add_argument("--list", action="store_true", help="show the parts, and do nothing")
    parser.add_argument("--page", action="store_true", help="write docs/proof.md from the ledger, and do nothing else")
    options = parser.parse_args(arguments)
    try:
        parts = chosen(options.parts)
    except ValueError as error:
        parser.error(str(error))
    if options.list:
        print("\n".join(f"{part.name:<18} {part.minutes:>4g} min  {part.proves}" for part in parts))
        return 0
    proofs: list[ledger.Proof] = []
    if not options.page:
        seed = secrets.randbelow(10**6) if options.seed is None else options.seed
        for number, part in enumerate(parts):
            left = sum(one.minutes for one in parts[number:])
            print(
                f"== {part.name} ({number + 1} of {len(parts)}, about {part.minutes:g} of {left:g} minutes), seed {seed}",
                flush=True,
            )
            proofs.append(prove(part, seed))
            ledger.append(proofs[-1])
    ledger.PAGE.write_text(ledger.page(ledger.read()))
    for proof in proofs:
        print(f"{proof.part:<18} {proof.seconds:>6.0f} s  {proof.outcome:<8} {proof.why}")
    failed = [proof for proof in proofs if proof.outcome == "failed"]
    if failed:
        print(f"FAILED: again by make prove PARTS={','.join(proof.part for proof in failed)} SEED={failed[0].seed}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
