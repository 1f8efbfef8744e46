"""What pages show as printed was printed by a test of this commit; all the rest are commands to type, settings or programs."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from tests.docs.transcripts import PICTURES, ROOT, assert_shown, blocks_of, complaint, masked, shown
from tests.machines import test_three_machines

HERE = "tests/docs/test_transcripts.py"


def test_every_transcript_was_made_by_a_test_of_this_commit() -> None:
    """One that nobody compares goes on saying what was true when it was pasted."""
    blocks = shown()
    made = Counter(block.test for block in blocks if block.test is not None)

    print("COUNTED", {"blocks": len(blocks), "transcripts": made.total(), "tests": len(made)})
    assert [text for block in blocks if (text := complaint(block))] == []
    assert len(blocks) >= 80, "the collector has lost its eyes"
    assert made.total() >= 2
    # One each: what was printed would else be called a picture.
    assert [block.page for block in blocks if block.language == "text"] == list(PICTURES)


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ("Text\n\n```\n$ rollcall status\nOK  3 replicas\n```\n", "page.md:3: no command begins like '$ rollcall status'"),
        ("```\nrollcall status\nprod  3 replicas in sync\n```\n", "no command begins like 'prod  3 replicas in sync'"),
        ("1. There:\n\n   ```sh\n   RESULT  10 steps\n   ```\n", "page.md:3: no command begins like 'RESULT  10 steps'"),
        ("```text\nRESULT  10 steps\n```\n", "the language 'text' is unknown"),
        ("<!-- made by tests/unit/test_gone.py::test_it -->\n```\nOK\n```\n", "page.md:2: there is no file tests/unit/test_gone.py"),
        (f"<!-- made by {HERE}::test_gone -->\n```\nOK\n```\n", "there is no test 'test_gone' in"),
        (f"<!-- made by {HERE}::test_what_differs_is_found -->\n```\nOK\n```\n", ""),
        ("<!-- made by tests/docs/test_site.py::test_no_page_fetches_from_another_origin -->\n```\nOK\n```\n", "compares nothing"),
        ("```\nA=$PWD B=1 rollcall status  # a remark\ncat > file <<END\nany text\nEND\nrollcall sets \\\n  -o name\n```\n", ""),
        ("```toml\n[fleet]\n```\n", ""),
    ],
)  # fmt: skip
def test_a_block_that_nobody_proves_is_found(page: str, why: str) -> None:
    """With page, line and remedy."""
    (block,) = blocks_of("page.md", page)
    told = complaint(block)

    assert why in told
    assert bool(why) == bool(told)


def test_what_differs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other words, other lines, a part of a line, and a test that no page names."""
    page = f"<!-- made by {HERE}::test_what_differs_is_found -->\n```\nkilled 17 in 3.2 ms\nall  in sync\n```\n"
    monkeypatch.setattr("tests.docs.transcripts.shown", lambda: list(blocks_of("page.md", page)))
    masks = ((r"\d+(?= in)", "PID"), (r"[\d.]+ m?s", "TIME"), (r" +", " "))

    assert_shown("before\nkilled 4711 in 12 s\nall in sync \nafter\n", masks=masks)
    for printed in (
        "killed 17 in 3.2 ms\n",
        "killed 17 in 3.2 ms\n\nall in sync",
        "not killed 17 in 3.2 ms\nall in sync\n",
    ):
        with pytest.raises(AssertionError, match=r"page\.md:2 shows\nkilled PID in TIME\nall in sync\n"):
            assert_shown(printed, masks=masks)
    monkeypatch.setattr("tests.docs.transcripts.shown", list)
    with pytest.raises(AssertionError, match="no page has a transcript"):
        assert_shown("anything")
    assert masked("a  b \n", ()) == "a  b\n"


def test_the_first_pages_lead_to_three_machines_an_alarm_a_switchover_and_a_restored_backup() -> None:
    """Each page leads to the next, and ``tests/machines`` types them in this order (it needs root, and says where it lacks it)."""
    way = ["README.md", "three-machines.md", "first-day.md"]
    for page, after in pairwise(way):
        assert f"]({after})" in (ROOT / "docs" / page).read_text()
    typed = "".join(lines for _, lines in test_three_machines.blocks())
    milestones = [
        *(f"--machine m{number}=" for number in (1, 2, 3)),
        'eval "$(tail -1 preview) --yes',
        "rollcall backup day.backup",
        'ALERTS{alertname="RollcallNoLeader",alertstate="firing"}',
        *(f"rollcall restore day.backup --name c{number}" for number in (1, 2, 3)),
        "deploy.local.audit audit",
    ]
    places = [typed.rfind(text) for text in milestones]

    assert -1 not in places
    assert places == sorted(places)
