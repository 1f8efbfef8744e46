"""The files of the console: open to everybody, under a strict policy, and of the words that the controllers use."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from rollcall_ha.api.rest.console import HEADERS, MEDIA_TYPES, POLICY, load_files
from rollcall_ha.cli.records import _forms
from rollcall_ha.controller.contract.events import AnyEvent
from rollcall_ha.controller.contract.problems import PROBLEMS
from rollcall_ha.controller.contract.sentences import SENTENCES, sections
from tests.support.runtime_controller import Controller, played_led

FOLDER = Path(__file__).resolve().parents[2] / "api" / "console"
SCRIPTS = sorted(FOLDER.glob("*.js"))


@played_led(is_insecure=False)
async def test_nobody_needs_a_right_for_the_page_and_everybody_for_what_it_shows(leader: Controller) -> None:
    """A browser has no token before there is a page to type it into."""
    for path in ("/console", "/console/", *(f"/console/{file.name}" for file in sorted(FOLDER.iterdir()))):
        answer = await leader.http.get(path)
        assert answer.status_code == 200, path
        assert answer.headers["content-security-policy"] == POLICY
        assert {name: answer.headers[name] for name in HEADERS} == dict(HEADERS)
        kind = MEDIA_TYPES[path.rpartition(".")[2]] if "." in path else MEDIA_TYPES["html"]
        assert answer.headers["content-type"] == kind
        again = await leader.http.get(path, headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    for path in ("/v1/overview", "/v1/events/stream", "/v1/status"):
        assert (await leader.http.get(path)).status_code == 401


@pytest.mark.slow
@pytest.mark.parametrize("name", ["missing.js", "..%2Fserver.py", "%2e%2e/server.py", "app.js%00.html", "__init__.py"])
@played_led(is_insecure=False)
async def test_no_path_reaches_another_file(leader: Controller, name: str) -> None:
    answer = await leader.http.get(f"/console/{name}")
    assert answer.status_code in (401, 404)
    assert b"import" not in answer.content


def test_the_policy_lets_nothing_in_but_our_own_files() -> None:
    rules = dict(rule.split(" ", 1) for rule in POLICY.split("; "))
    assert rules["default-src"] == "'none'"
    assert {rules[name] for name in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}
    assert rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert "unsafe" not in POLICY


def test_no_file_makes_markup_of_text_or_asks_another_address() -> None:
    """What the policy would stop is not even tried."""
    page = (FOLDER / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(r"\son\w+=|\sstyle=|<style", page) == []
    texts = {file.name: file.read_text() for file in FOLDER.iterdir()}
    banned = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|localStorage|document\.cookie|(?<!-)\bstyle:|EventSource"
    assert {name: found for name, text in texts.items() if (found := re.findall(banned, text))} == {}
    assert {
        name: found
        for name, text in texts.items()
        if (found := [one for one in re.findall(r"(?:https?:)?//[a-z0-9.]+\.[a-z]+", text) if "www.w3.org" not in one])
    } == {}


def test_every_file_is_asked_for_by_another_and_is_there() -> None:
    asked = set(re.findall(r"/console/([\w.]+)", (FOLDER / "index.html").read_text()))
    for script in SCRIPTS:
        asked |= set(re.findall(r'(?:from |import\()"\./([\w.]+)"', script.read_text()))
    assert (
        asked | {"index.html"}
        == set(load_files())
        == {file.name for file in FOLDER.iterdir()} | {"problems.js", "sentences.js"}
    )


def test_the_words_of_problems_and_events_are_those_of_the_controllers() -> None:
    """A problem or a kind of event that is added has its words here too."""
    words = (FOLDER / "words.js").read_text()
    kinds = {kind.__struct_config__.tag for kind in AnyEvent.__args__}
    problems, sentences = (
        json.loads(load_files()[f"{name.lower()}.js"].content.removeprefix(f"export const {name} = ".encode())[:-2])
        for name in ("PROBLEMS", "SENTENCES")
    )
    assert problems == {code: {"words": kind.words, "alarm": kind.alarm} for code, kind in PROBLEMS.items()}
    assert sentences == json.loads(msgspec.json.encode({kind: sections(kind) for kind in SENTENCES}))
    assert set(sentences) == kinds
    (written,) = re.findall(r"const FORMS = \{(.*?)\n\};", words, re.DOTALL)
    assert {form for form in _forms({}) if not re.search(rf"(?<!\w){form or chr(34) * 2}[,:]", written)} == set()
    for table in ("NOTABLE", "SHAPES"):
        (named,) = re.findall(rf"const {table} = (.*);$", words, re.MULTILINE)
        assert set(re.findall(r'"([a-z]+-[a-z-]+)"', named)) <= kinds
