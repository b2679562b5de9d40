"""Values of options that end up in files, scripts and recipes: text of one line, not empty."""

from __future__ import annotations

from collections.abc import Iterable

import typer


def one_line(value: str | None) -> str | None:
    """The value; a usage error where it is empty, holds control characters or bytes that are no
    UTF-8: no recipe, search path or record could carry it."""
    if value is not None:
        _check(value)
    return value


def each_one_line(values: list[str] | None) -> list[str] | None:
    """The same for an option that may be repeated."""
    for value in values or ():
        _check(value)
    return values


def _check(value: str) -> None:
    if not value.strip():
        raise typer.BadParameter("it is empty (a variable that is not set?)")
    if not _carried(value):
        raise typer.BadParameter("it holds a line end, a control character or bytes not UTF-8")


def _carried(text: Iterable[str]) -> bool:
    return not any(
        char < " " or "\x7f" <= char <= "\x9f" or "\ud800" <= char <= "\udfff" for char in text
    )
