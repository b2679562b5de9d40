"""What must be true of the matrix beyond its types: order, numbers, references."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from cudnn_doctor.matrix.model import SCHEMA, Matrix, Release, Sourced, Variant
from cudnn_doctor.matrix.source import Field

Problem = tuple[Field, str]

_VERSION = re.compile(r"\d+\.\d+\.\d+")
_BUILD = re.compile(r"\d+\.\d+\.\d+\.\d+(\.post\d+)?")
_DOTTED = re.compile(r"\d+(\.\d+){0,3}")
_CC = re.compile(r"\d{1,2}\.\d[af]?")
_CC_NEED = re.compile(r"\d{1,2}\.\d[af]?(\+PTX)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_HEX = re.compile(r"[0-9a-f]+")
_SONAME = re.compile(r"libcudnn\w*\.so\.\d+")
_PATTERNS: dict[str, tuple[re.Pattern[str], str]] = {
    "version": (_VERSION, "a release number such as 9.10.2"),
    "build": (_BUILD, "a build number such as 9.10.2.21"),
    "driver": (_DOTTED, "a driver version such as 525.60.13"),
    "blackwell_driver": (_DOTTED, "a driver version such as 570.26"),
    "first": (_DOTTED, "a driver version such as 535.54.03"),
    "cuda": (_DOTTED, "a CUDA version such as 12 or 12.4"),
    "cudart": (_DOTTED, "a CUDA version such as 12.9"),
    "toolkits": (_DOTTED, "a CUDA version such as 12.4"),
    "min_cuda": (_DOTTED, "a CUDA version such as 12.8"),
    "max_cuda": (_DOTTED, "a CUDA version such as 12.9"),
    "glibc": (_DOTTED, "a glibc version such as 2.27"),
    "cc": (_CC, "a compute capability such as 8.6"),
    "cc_min": (_CC, "a compute capability such as 5.0"),
    "cc_max": (_CC, "a compute capability such as 12.0"),
    "cc_partial": (_CC, "a compute capability such as 12.1"),
    "ptx": (_CC, "a compute capability such as 12.0f"),
    "libraries": (_SONAME, "a SONAME such as libcudnn_graph.so.9"),
    "jit_libraries": (_SONAME, "a SONAME such as libcudnn_graph.so.9"),
    "needs_driver": (_SONAME, "a SONAME such as libcudnn_graph.so.9"),
    "date": (_DATE, "a date such as 2025-06-06"),
}


def problems(matrix: Matrix) -> Iterator[Problem]:
    """Everything that is wrong, in the order of the file: the field and what is wrong with it."""
    if matrix.schema != SCHEMA:
        yield ("schema",), f"{matrix.schema} is not {SCHEMA}"
    if not _DATE.fullmatch(matrix.updated):
        yield ("updated",), "not a date such as 2026-11-30"
    for field in ("archive_source", "wheel_source"):
        value = getattr(matrix, field)
        if value and value not in matrix.sources:
            yield (field,), f"no such source: {value}"
    for index, release in enumerate(matrix.releases):
        yield from _release(matrix, release, ("releases", index))
    yield from _sorted(matrix.releases)
    for table in ("issues", "gpus", "driver_branches", "cuda_floors", "toolkit_drivers"):
        yield from _rows(matrix, table)
    yield from _unique("issues", [row.id for row in matrix.issues], "id")
    yield from _unique("gpus", [row.cc for row in matrix.gpus], "cc")
    yield from _unique("driver_branches", [row.branch for row in matrix.driver_branches], "branch")
    for index, issue in enumerate(matrix.issues):
        yield from _specifier(("issues", index, "affects"), issue.affects)
    yield from _frameworks(matrix)
    for table in ("distro_packages", "repositories"):
        yield from _rows(matrix, table)
    for index, package in enumerate(matrix.distro_packages):
        yield from _specifier(("distro_packages", index, "cudnn"), package.cudnn)
    for index, repository in enumerate(matrix.repositories):
        yield from _hex(("repositories", index, "keyring_sha256"), repository.keyring_sha256, 64)


def _release(matrix: Matrix, release: Release, at: Field) -> Iterator[Problem]:
    yield from _fields(release, at)
    yield from _sources(matrix, release, at)
    if release.build and not release.build.startswith(f"{release.version}."):
        yield (*at, "build"), f"{release.build} is no build of {release.version}"
    for index, variant in enumerate(release.variants):
        where = (*at, "variants", index)
        yield from _fields(variant, where)
        yield from _sources(matrix, variant, where)
        yield from _capabilities(variant, where)
    yield from _unique((*at, "variants"), [v.cuda for v in release.variants], "cuda")
    for index, archive in enumerate(release.archives):
        where = (*at, "archives", index)
        yield from _hex((*where, "sha256"), archive.sha256, 64)
        yield from _hex((*where, "md5"), archive.md5, 32)
        if archive.version and not _BUILD.fullmatch(archive.version):
            yield (*where, "version"), f"not a build number such as 9.10.2.21: {archive.version!r}"
        if archive.path.startswith("/") or ".." in archive.path.split("/"):
            yield (*where, "path"), "must be a path below the base"
    yield from _unique((*at, "archives"), [a.path for a in release.archives], "path")
    for index, wheel in enumerate(release.wheels):
        where = (*at, "wheels", index)
        yield from _hex((*where, "sha256"), wheel.sha256, 64)
        if not _BUILD.fullmatch(wheel.version):
            yield (*where, "version"), f"not a build number such as 9.10.2.21: {wheel.version!r}"
    yield from _unique((*at, "wheels"), [w.file for w in release.wheels], "file")


def _capabilities(variant: Variant, at: Field) -> Iterator[Problem]:
    for field in ("cc", "cc_partial", "ptx"):
        values = getattr(variant, field) or ()
        if all(_CC.fullmatch(v) for v in values) and list(values) != sorted(values, key=_number):
            yield (*at, field), "not in ascending order"
    both = set(variant.cc or ()) & set(variant.cc_partial)
    if both:
        yield (*at, "cc_partial"), f"{min(both)} is also in cc"


def _frameworks(matrix: Matrix) -> Iterator[Problem]:
    for index, need in enumerate(matrix.frameworks):
        at: Field = ("frameworks", index)
        yield from _sources(matrix, need, at)
        if need.loader not in matrix.loaders:
            yield (*at, "loader"), f"no such loader: {need.loader}"
        if need.foreign not in matrix.foreign_effects:
            yield (*at, "foreign"), f"no such foreign effect: {need.foreign}"
        for field in ("versions", "cudnn_install", "cudnn_runtime", "python"):
            yield from _specifier((*at, field), getattr(need, field))
        for field in ("cuda_built", "cudnn_built", "driver"):
            yield from _match((*at, field), getattr(need, field), _DOTTED, "a version")
        for number, cc in enumerate(need.cc or ()):
            yield from _match((*at, "cc", number), cc, _CC_NEED, "a compute capability")


def _rows(matrix: Matrix, table: str) -> Iterator[Problem]:
    rows: tuple[Sourced, ...] = getattr(matrix, table)
    for index, row in enumerate(rows):
        yield from _fields(row, (table, index))
        yield from _sources(matrix, row, (table, index))


def _fields(row: msgspec.Struct, at: Field) -> Iterator[Problem]:
    """Check every field whose name stands for one kind of value."""
    for field in row.__struct_fields__:
        if field in _PATTERNS:
            pattern, kind = _PATTERNS[field]
            value: Any = getattr(row, field)
            if isinstance(value, tuple):
                for index, part in enumerate(value):
                    yield from _match((*at, field, index), part, pattern, kind)
            else:
                yield from _match((*at, field), value, pattern, kind)


def _match(at: Field, value: str | None, pattern: re.Pattern[str], kind: str) -> Iterator[Problem]:
    if value is not None and not pattern.fullmatch(value):
        yield at, f"not {kind}: {value!r}"


def _sources(matrix: Matrix, row: Sourced, at: Field) -> Iterator[Problem]:
    if not row.source:
        yield (*at, "source"), "missing: where do the values come from?"
    elif row.source not in matrix.sources:
        yield (*at, "source"), f"no such source: {row.source}"
    for field, source in row.sources.items():
        if source not in matrix.sources:
            yield (*at, "sources", field), f"no such source: {source}"
        if field not in row.__struct_fields__:
            yield (*at, "sources", field), f"no such field: {field}"


def _specifier(at: Field, text: str | None) -> Iterator[Problem]:
    try:
        SpecifierSet(text or "")
    except InvalidSpecifier:
        yield at, f"not a PEP 440 specifier: {text!r}"


def _hex(at: Field, text: str | None, size: int) -> Iterator[Problem]:
    if text is not None and (len(text) != size or not _HEX.fullmatch(text)):
        yield at, f"not {size} lower-case hexadecimal digits"


def _unique(table: str | Field, keys: Iterable[str], field: str) -> Iterator[Problem]:
    at: Field = (table,) if isinstance(table, str) else table
    counts: Counter[str] = Counter()
    for index, key in enumerate(keys):
        counts[key] += 1
        if counts[key] == 2:
            yield (*at, index, field), f"{key} is there twice"


def _sorted(releases: tuple[Release, ...]) -> Iterator[Problem]:
    for index, (before, after) in enumerate(itertools.pairwise(releases), start=1):
        if not (_VERSION.fullmatch(before.version) and _VERSION.fullmatch(after.version)):
            continue
        older, newer = _number(before.version), _number(after.version)
        if older == newer:
            yield ("releases", index, "version"), f"{after.version} is there twice"
        elif older > newer:
            yield ("releases", index, "version"), f"must stand before {before.version}"


def _number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))
