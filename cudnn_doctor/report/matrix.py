"""The matrix for a terminal: an overview, or one release with the provenance of every value."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from cudnn_doctor import __version__
from cudnn_doctor.matrix.model import Matrix, Release, Sourced, Variant
from cudnn_doctor.matrix.query import archive_url, issues_for
from cudnn_doctor.matrix.specs import version_key

SCHEMA = 1
_WIDTH = 80
_SHOWN = (
    "toolkits",
    "driver",
    "blackwell_driver",
    "cc_min",
    "cc_max",
    "cc",
    "cc_partial",
    "ptx",
    "cudart",
    "glibc",
    "libraries",
    "shim_search",
    "needs_driver",
)


def overview(matrix: Matrix) -> str:
    """One line a release, newest first, at most 80 columns."""
    row = "{:<8} {:<10} {:<26} {:<10} {:>5} {:>6} {}"
    lines = [row.format("cuDNN", "released", "CUDA", "GPUs (cc)", "files", "wheels", "issues")]
    for release in reversed(matrix.releases):
        wheels = [wheel for wheel in release.wheels if not wheel.yanked]
        marks = [str(len(issues_for(matrix, release.version)) or "")]
        if release.wheels and len(wheels) < len(release.wheels):
            marks.append("yanked")
        if release.status != "release":
            marks.append(release.status)
        cells = (
            release.version,
            release.date or "?",
            ", ".join(variant.cuda for variant in release.variants),
            _span(release.variants),
            len(release.archives) or "",
            len(wheels) or "",
            " ".join(filter(None, marks)),
        )
        lines.append(row.format(*cells).rstrip())
    lines.append(f"{len(matrix.releases)} releases, matrix of {matrix.updated}")
    return "\n".join(lines)


def full(matrix: Matrix, release: Release) -> str:
    """Everything about one release; each value with how it is known."""
    return "\n".join(_full(matrix, release))


def to_json(matrix: Matrix, release: Release | None) -> dict[str, Any]:
    """The document of ``matrix show --json``: all releases in short, or one with its sources."""
    head: dict[str, Any] = {"schema": SCHEMA, "tool": f"cudnn-doctor {__version__}"}
    if release is None:
        short = ("version", "build", "date", "status", "source")
        rows = [
            {name: getattr(r, name) for name in short} | {"cuda": [v.cuda for v in r.variants]}
            for r in matrix.releases
        ]
        return head | {"updated": matrix.updated, "releases": rows}
    used = {release.source, *release.sources.values(), matrix.archive_source, matrix.wheel_source}
    for variant in release.variants:
        used |= {variant.source, *variant.sources.values()}
    issues = issues_for(matrix, release.version)
    used |= {issue.source for issue in issues}
    sources = {name: matrix.sources[name] for name in sorted(used & matrix.sources.keys())}
    return head | {
        "release": msgspec.to_builtins(release),
        "issues": msgspec.to_builtins(issues),
        "sources": msgspec.to_builtins(sources),
    }


def _span(variants: Iterable[Variant]) -> str:
    """Lowest and highest capability of all flavours, ``?`` where unknown."""
    lows = [v.cc_min for v in variants if v.cc_min]
    highs = [v.cc_max for v in variants if v.cc_max]
    low = min(lows, key=version_key, default="?")
    high = max(highs, key=version_key, default="?")
    return "?" if low == high == "?" else f"{low} - {high}"


def _full(matrix: Matrix, release: Release) -> Iterator[str]:
    yield f"cuDNN {release.version}"
    for field in ("build", "date", "status", "libraries", "jit_libraries"):
        yield from _value(matrix, release, field)
    if release.note:
        yield f"  {release.note}"
    for variant in release.variants:
        yield ""
        yield f"CUDA {variant.cuda}"
        for field in _SHOWN:
            yield from _value(matrix, variant, field)
        if variant.note:
            yield f"  {variant.note}"
    if release.archives:
        yield ""
        yield f"Archives{_provenance(matrix, matrix.archive_source)}"
        for archive in release.archives:
            size = f"{archive.size / 2**20:.0f} MiB" if archive.size else "size not known"
            jit = " jit" if archive.flavour == "jit" else ""
            yield f"  {archive.platform} CUDA {archive.cuda}{jit}, {size}"
            yield f"    {archive_url(matrix, archive)}"
            yield f"    sha256 {archive.sha256 or 'not known'}"
    if release.wheels:
        yield ""
        yield f"Wheels{_provenance(matrix, matrix.wheel_source)}"
        for wheel in release.wheels:
            yanked = f"  yanked: {wheel.yanked}" if wheel.yanked else ""
            yield f"  {wheel.package}=={wheel.version} {wheel.arch}{yanked}"
    yield from _issues(matrix, release)


def _issues(matrix: Matrix, release: Release) -> Iterator[str]:
    issues = issues_for(matrix, release.version)
    if issues:
        yield ""
        yield "Known issues"
    for issue in issues:
        limits = [f"compute capability {', '.join(issue.cc)}"] if issue.cc else []
        limits += [f"CUDA {issue.cuda}"] if issue.cuda else []
        limits += list(issue.packages)
        where = f" ({'; '.join(limits)})" if limits else ""
        text = f"{issue.id}: {issue.title}{where}"
        yield from textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="    ")


def _value(matrix: Matrix, record: Sourced, field: str) -> Iterator[str]:
    value = getattr(record, field)
    if value is None or (value == () and field != "ptx"):
        return
    text = ", ".join(value) or "none" if isinstance(value, tuple) else str(value)
    source = record.sources.get(field, record.source)
    line = f"{field.replace('_', ' ')}: {text}{_provenance(matrix, source)}"
    yield from textwrap.wrap(
        line, _WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
    )


def _provenance(matrix: Matrix, source: str) -> str:
    known = matrix.sources.get(source)
    return f"  [{known.how}: {source}]" if known else ""
