"""CONTRIBUTING.md against the repository: the recipes against changes that were made, the answers against the code."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.docs.recipes import Recipe, git, recipes, touched

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
RECIPES = recipes(PAGE)
QUESTIONS = re.findall(r"(?m)^\| (Where|Which|How)([^|]*\?) \| (.*) \|$", PAGE)
PLACES = sorted(set(re.findall(r"`([\w/]+\.py)` \(`(\w+)`", PAGE)))


def has_history(commit: str) -> bool:
    """This checkout knows the commit: a clone without history, or an archive, does not."""
    try:
        git("cat-file", "-e", f"{commit}^{{commit}}")
    except (subprocess.CalledProcessError, FileNotFoundError):
        return False
    return True


def test_there_is_a_recipe_for_each_kind_of_change() -> None:
    """The other tests would pass on nothing."""
    kinds = [
        "a command",
        "an event",
        "a route",
        "a metric",
        "a port, or a request code on one",
        "a policy",
        "an ack mode",
    ]

    assert [recipe.title.removeprefix("To add ") for recipe in RECIPES] == kinds
    assert all(recipe.commits and len(recipe.paths) >= 5 for recipe in RECIPES)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.title)
def test_a_recipe_names_files_that_exist(recipe: Recipe) -> None:
    """A moved file takes its recipe along."""
    assert [path for path in recipe.paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("recipe", "commit"),
    [(recipe, commit) for recipe in RECIPES for commit in recipe.commits],
    ids=lambda value: value if isinstance(value, str) else value.title,
)
def test_a_recipe_has_every_file_that_a_real_change_touched(recipe: Recipe, commit: str) -> None:
    """By their names of today; files that are gone since, and those that only mark a package, do not count."""
    if not has_history(commit):
        pytest.skip(f"this checkout has no commit {commit}: a clone with its history has")
    files = [path for path in touched(commit) if not path.endswith("__init__.py")]

    assert len(files) >= 1
    assert [path for path in files if not recipe.covers(path)] == []


def test_ten_questions_are_answered_by_a_place() -> None:
    """Each answer names a file of the repository, so that the code is one hop away and a linked page two."""
    assert len(QUESTIONS) == 10
    for start, rest, answer in QUESTIONS:
        paths = re.findall(r"`((?:\w+/)+\w+\.py)`", answer)

        assert paths, start + rest
        assert [path for path in paths if not (ROOT / path).is_file()] == []


@pytest.mark.parametrize(("path", "name"), PLACES, ids=lambda value: value)
def test_a_named_function_or_class_is_in_that_file(path: str, name: str) -> None:
    """At the top of the module, where a reader finds it."""
    tops = ast.parse((ROOT / path).read_text()).body
    defined = {node.name for node in tops if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    defined |= {
        target.id
        for node in tops
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    defined |= {
        node.target.id for node in tops if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }

    assert name in defined


def test_places_are_read() -> None:
    """The pattern finds what the page names."""
    assert len(PLACES) >= 12
