"""Elements of HTML and SVG as text: whatever is not marked as markup is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from cudnn_doctor.report.outcomes import CONTROL

_VOID = {"meta", "link", "br", "hr"}


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def el(name: str, /, *children: object, **attributes: object) -> Html:
    """An element. ``class_`` is ``class``, ``data_x`` is ``data-x``; None and False are left out,
    True is an attribute without a value."""
    told = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{text(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{told}>")
    return Html(f"<{name}{told}>{join(children)}</{name}>")


def join(children: object) -> Html:
    """Children one after the other; nested lists are flattened, None is nothing."""
    if children is None:
        return Html("")
    if isinstance(children, str):
        return text(children)
    if isinstance(children, Iterable):
        return Html("".join(join(child) for child in children))
    return text(str(children))


def text(value: object) -> Html:
    """The value with ``& < > " '`` escaped and control characters left out."""
    if isinstance(value, Html):
        return value
    return Html(escape(CONTROL.sub("", str(value)), quote=True))
