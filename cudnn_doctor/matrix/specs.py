"""PEP 440 specifiers on cuDNN releases, which have three or four numbers."""

from __future__ import annotations

import functools
import re

from packaging.specifiers import InvalidSpecifier, Specifier, SpecifierSet
from packaging.version import InvalidVersion, Version

_PLAIN = re.compile(r"\d+(\.\d+){0,3}(\.\*)?")


@functools.lru_cache(maxsize=65536)
def matches(specifier: str, version: str, build: str | None) -> bool:
    """Whether release ``version`` (``9.10.2``) of build ``build`` (``9.10.2.21``) satisfies it.

    A clause with four numbers is about the build, a shorter one about the release, so that
    ``<=9.10.2`` includes build 9.10.2.21. Raises ``ValueError`` on a malformed specifier.
    """
    return all(
        clause.contains(build if build and exact else version, prereleases=True)
        for clause, exact in _clauses(specifier)
    )


def names_build(specifier: str, version: str, build: str | None) -> bool:
    """Whether the specifier asks for exactly this release or build by number."""
    clauses = _clauses(specifier)
    single = len(clauses) == 1 and clauses[0][0].operator in ("==", "===")
    if not single or not matches(specifier, version, build):
        return False
    return len(clauses[0][0].version.removesuffix(".*").split(".")) >= 3


def normalise(text: str) -> str:
    """Turn what a user types (``9.10``, ``9.10.*``, ``9.10.2.21``, ``>=9.5``) into PEP 440.

    Raises ``ValueError`` when it is neither a release number nor a specifier.
    """
    text = text.strip().removeprefix("v")
    if _PLAIN.fullmatch(text):
        numbers = text.removesuffix(".*")
        whole = text == numbers and numbers.count(".") >= 2
        return f"=={numbers}" if whole else f"=={numbers}.*"
    try:
        return str(SpecifierSet(text))
    except InvalidSpecifier as error:
        raise ValueError(f"not a version or specifier: {text!r}") from error


@functools.lru_cache(maxsize=8192)
def version_key(text: str | None) -> tuple[int, ...]:
    """Numbers of a dotted version for ordering; anything after them is ignored."""
    match = re.match(r"\d+(\.\d+)*", text or "")
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def parse_version(text: str) -> Version | None:
    """A PEP 440 version, or None."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


@functools.lru_cache(maxsize=1024)
def _clauses(specifier: str) -> tuple[tuple[Specifier, bool], ...]:
    try:
        parts = [Specifier(part) for part in specifier.split(",") if part.strip()]
    except InvalidSpecifier as error:
        raise ValueError(f"not a PEP 440 specifier: {specifier!r}") from error
    return tuple((part, part.version.removesuffix(".*").count(".") >= 3) for part in parts)
