"""The pages about diagnoses: ``docs/diagnoses/ID.md``, shipped in the wheel beside this module."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parent
_FOLDERS = (_HERE / "pages", _HERE.parent.parent / "docs" / "diagnoses")
"""In a wheel, in a checkout."""


def folder() -> Path | None:
    """Where the pages lie; None where they were left out of the installation."""
    return next((place for place in _FOLDERS if place.is_dir()), None)


def page_ids() -> tuple[str, ...]:
    """Ids of all diagnoses that have a page."""
    place = folder()
    return tuple(sorted(path.stem for path in place.glob("*.md"))) if place else ()


def page(diagnosis: str) -> str | None:
    """The page of one diagnosis as Markdown, None where there is none."""
    place = folder()
    if place is None or diagnosis not in page_ids():
        return None
    return (place / f"{diagnosis}.md").read_text(encoding="utf-8").rstrip()
