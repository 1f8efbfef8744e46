"""Answers that come in pages, as one; fetching a page is the caller's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from rollcall_ha.controller.contract.views import PAGE_SETS_MAX, FleetStatus, SetPage

Page = TypeVar("Page", FleetStatus, SetPage)


def all_pages(page: Callable[[str | None], Page]) -> Page:
    """The first page with the sets of all pages: the first is the oldest, so its freshness holds for all."""
    first: Page = page(None)
    sets = [*first.sets]
    after = first.next_after
    while after is not None:
        following = page(after)
        sets.extend(following.sets)
        after = following.next_after
    return msgspec.structs.replace(first, sets=tuple(sets), next_after=None)


def page_params(consistency: str, after: str | None) -> dict[str, str]:
    """The question for a page of sets; ``after`` None: for the first one."""
    return {"consistency": consistency, "limit": str(PAGE_SETS_MAX)} | ({"after": after} if after else {})
