"""
SVG and small HTML elements as values: text stays text.

Here: elements, escaping, rounding of coordinates. Not here: pictures (beside), the page (``page.html.jinja``), style
(``style.css``).
Rule 1: a plain string is escaped wherever it is put; only ``Markup`` passes as it is. A broker set named
``</svg><script>`` comes from a journal, and without this rule its script would run in the reader's browser.
Rule 2: a picture is rows of words with strips of drawing: as wide as its page, and its words never shrink. Only maps of
days have a width of their own (``svg``).
Rule 3: coordinates are rounded to a tenth, so that the same table gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

_SELF_CLOSING = frozenset({"rect", "line", "circle", "path", "polygon"})


def text_of(child: object) -> Markup:
    """HTML of a child: ``Markup`` as it is, None as nothing, lists one after the other, everything else escaped."""
    if child is None:
        return Markup()
    if isinstance(child, str | int):
        return escape(child)
    if isinstance(child, Iterable):
        return Markup().join(text_of(one) for one in child)
    raise TypeError(f"{child!r} is neither text nor markup")


def element(name: str, /, *children: object, **attributes: object) -> Markup:
    """
    One element. Attributes: ``class_`` is class, underscores are hyphens, None is left out, numbers are rounded.
    """
    given = Markup().join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _value(value))
        for key, value in attributes.items()
        if value is not None
    )
    if name in _SELF_CLOSING and not children:
        return Markup("<{}{}/>").format(name, given)
    return Markup("<{0}{1}>{2}</{0}>").format(name, given, text_of(children))


def _value(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)


def number(value: float) -> str:
    """A coordinate: a tenth of a pixel cannot be seen."""
    return f"{value:.1f}".removesuffix(".0")


def svg(*children: object, width: float, height: float, title: str, description: str) -> Markup:
    """A map that scales with the page, down to where its words could not be read, and has its content in words."""
    return element(
        "svg",
        element("title", title),
        element("desc", description),
        *children,
        viewBox=f"0 0 {number(width)} {number(height)}",
        width=width,
        height=height,
        role="img",
    )


def line(name: str, drawn: object, *, value: str = "", soft: str = "") -> Markup:
    """A row of a picture: what it is about, strips, a number. Where it is narrow, the strips come below the words."""
    return element(
        "div",
        element("div", element("b", name), element("span", soft) if soft else None, class_="name"),
        element("div", drawn, class_="drawn"),
        element("div", value, class_="value") if value else None,
        class_="line",
    )


def strip(*pieces: object, height: float) -> Markup:
    """A drawing as wide as there is room. Places in it are shares of its width, so that words keep their size."""
    return element("svg", *pieces, class_="strip", width="100%", height=height)


def percent(share: float) -> str:
    """A place in a strip, or a width."""
    return f"{share * 100:.2f}%"


def at(share: float, *pieces: object) -> Markup:
    """Pieces in pixels around a place in a strip."""
    return element("svg", *pieces, x=percent(share), class_="at")


def part(low: float, wide: float, top: float, height: float, kind: str, *, hint: str | None = None) -> list[Markup]:
    """A part of a strip, in the colour of its kind and with the pattern of it."""
    place = {"x": percent(low), "y": top, "width": percent(wide), "height": height}
    inner = [] if hint is None else [element("title", hint)]
    return [element("rect", **place, class_=kind), element("rect", *inner, **place, class_=f"over {kind}-pattern")]


def badge(letter: str, x: float, y: float) -> list[Markup]:
    """A letter or a digit that tells a kind of part, on a plate of its own."""
    return [
        element("circle", cx=x, cy=y, r=7.0, class_="badge"),
        label(letter, x, y + 4, class_="badge-text", anchor="middle"),
    ]


def legend(items: Iterable[tuple[object, str]], *, width: int = 22) -> Markup:
    """Pieces in pixels, ``width`` wide and 16 high, each with its words."""
    return element(
        "ul",
        *(
            element("li", element("svg", pieces, width=width, height=16, aria_hidden="true"), f" {words}")
            for pieces, words in items
        ),
        class_="legend",
    )


def swatch(kind: str, letter: str = "") -> list[object]:
    """A kind of part in a legend."""
    return [part(0, 1, 0, 16, kind), badge(letter, 11, 8) if letter else None]


def label(text: str, x: float | str, y: float, *, class_: str = "", anchor: str = "start") -> Markup:
    """Text in a drawing; ``y`` is its base line."""
    return element("text", text, x=x, y=y, class_=class_ or None, text_anchor=anchor)


def box(x: float, y: float, width: float | str, height: float, class_: str, *, hint: str | None = None) -> Markup:
    """A rectangle; ``hint`` is shown by the browser when it is pointed at."""
    inner = [] if hint is None else [element("title", hint)]
    return element("rect", *inner, x=x, y=y, width=width, height=height, class_=class_ or None)
