"""
SVG and small HTML elements as values: text stays text.

Here: elements, escaping, rounding of coordinates. Not here: pictures (beside), the page (``page.html.jinja``), style
(``style.css``).
Rule 1: a plain string is escaped wherever it is put; only ``Markup`` passes as it is. A broker set named
``</svg><script>`` comes from a journal, and without this rule its script would run in the reader's browser.
Rule 2: coordinates are rounded to a tenth, so that the same table gives the same bytes.
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
    """A picture that scales down with the page and has its content in words."""
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


def label(text: str, x: float, y: float, *, class_: str = "", anchor: str = "start") -> Markup:
    """Text in a picture; ``y`` is its base line."""
    return element("text", text, x=float(x), y=float(y), class_=class_ or None, text_anchor=anchor)


def box(x: float, y: float, width: float, height: float, class_: str, *, hint: str | None = None) -> Markup:
    """A rectangle; ``hint`` is shown by the browser when it is pointed at."""
    inner = [] if hint is None else [element("title", hint)]
    return element(
        "rect", *inner, x=float(x), y=float(y), width=float(width), height=float(height), class_=class_ or None
    )
