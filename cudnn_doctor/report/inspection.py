"""What ``matrix inspect`` measured: a table, JSON, and a row of ``compat_matrix.yaml``."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import msgspec

from cudnn_doctor import __version__
from cudnn_doctor.machine.inspection import Inspection
from cudnn_doctor.matrix.measured import capabilities, capability
from cudnn_doctor.matrix.model import Release, Row
from cudnn_doctor.matrix.specs import version_key

SCHEMA = 1
_WIDTH = 80
_YAML_WIDTH = 105
_BARE = re.compile(r"[A-Za-z_][\w.+/-]*")
_PROVENANCE = ("source", "sources", "note")
_YAML_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


def table(found: Inspection) -> str:
    """At most 80 columns: the whole, one line a library, its GPU code, what it needs."""
    lines = [*_head(found), "", *_libraries(found), "", *_code(found), "", *_needs(found)]
    return "\n".join(_clean(line) for line in lines)


def to_json(found: Inspection) -> dict[str, Any]:
    """The document of ``matrix inspect --json``.

    ``inspected`` maps ``package==version`` (or the file name) to one record with ``file``,
    ``headers``, ``init_files`` and ``libraries``.
    """
    record = msgspec.to_builtins(found)
    for content in record["libraries"].values():
        for name in [n for n, value in content.items() if value is None or value == ""]:
            del content[name]
    key = f"{found.package}=={found.version}" if found.package else found.file
    return {
        "schema": SCHEMA,
        "tool": f"cudnn-doctor {__version__}",
        "inspected": {key: record},
    }


def yaml_row(release: Release) -> str:
    """A release as it stands below ``releases:`` in compat_matrix.yaml."""
    return "\n".join(_release(release))


def _head(found: Inspection) -> Iterator[str]:
    yield found.file
    what = [found.kind, found.package or "", found.version or found.header_version or "?"]
    facts = [" ".join(filter(None, what)), f"CUDA {found.cuda or '?'}"]
    facts += ["JIT flavour"] if found.jit else []
    facts += [next(iter(found.libraries.values())).machine or "?"]
    facts += [f"{found.size / 2**20:.0f} MiB"] if found.size is not None else []
    yield f"  {', '.join(facts)}"
    if found.sha256:
        yield f"  sha256 {found.sha256}"
    newest = f", newest GPU it names {found.max_device}" if found.max_device else ""
    yield f"  cudnn_version.h: {found.header_version or 'not there'}{newest}"
    if found.requires:
        yield from _wrapped(f"requires {', '.join(found.requires)}", "  ", "    ")


def _libraries(found: Inspection) -> Iterator[str]:
    row = "{:<44} {:>6}  {:<7}  {:<5}  {}"
    yield row.format("library", "MiB", "search", "glibc", "state")
    for name, content in found.libraries.items():
        search = "RUNPATH" if content.runpath else "RPATH" if content.rpath else "none"
        size = f"{content.size / 2**20:.1f}"
        state = content.damage or "ok"
        yield row.format(name[:44], size, search, content.glibc or "-", state)[:_WIDTH].rstrip()


def _code(found: Inspection) -> Iterator[str]:
    """Numbers of cubins and PTX texts, a column for each compute capability."""
    carriers = {n: c for n, c in found.libraries.items() if c.sass or c.ptx}
    if not carriers:
        yield "no GPU code"
        return
    parts = {name: _part(name) for name in carriers}
    label = max(map(len, parts.values()))
    yield from _grid("cubins", {parts[n]: c.sass for n, c in carriers.items()}, label)
    yield ""
    yield from _grid("PTX", {parts[n]: c.ptx for n, c in carriers.items()}, label)
    yield ""
    code = capabilities(found.libraries)
    if code:
        yield f"GPUs served by all of these: {' '.join(code.cc) or 'none'}"
        if code.cc_partial:
            yield f"by some, or by a few kernels: {' '.join(code.cc_partial)}"
        isa = max((c.ptx_isa or "" for c in carriers.values()), key=version_key)
        version = f" (PTX ISA {isa})" if isa and code.ptx else ""
        yield f"PTX in all, for newer GPUs:   {' '.join(code.ptx) or 'none'}{version}"


def _grid(title: str, rows: dict[str, dict[str, int]], label: int) -> Iterator[str]:
    """One or more blocks of columns that fit the width."""
    archs = sorted({a for row in rows.values() for a in row}, key=lambda a: _order(capability(a)))
    width = 1 + max((len(str(row.get(a, ""))) for a in archs for row in rows.values()), default=0)
    width = max([width, *(1 + len(capability(a)) for a in archs)])
    columns = max(1, (_WIDTH - label) // width)
    for start in range(0, len(archs), columns):
        block = archs[start : start + columns]
        yield f"{title:<{label}}" + "".join(f"{capability(a):>{width}}" for a in block)
        for name, counts in rows.items():
            cells = "".join(f"{counts.get(a, ''):>{width}}" for a in block)
            yield f"{name:<{label}}{cells}".rstrip()


def _needs(found: Inspection) -> Iterator[str]:
    yield "NEEDED"
    for name, content in found.libraries.items():
        yield from _wrapped(f"{_part(name)}: {' '.join(content.needed) or 'nothing'}", "  ", "    ")


def _part(name: str) -> str:
    """``ops`` of libcudnn_ops.so.9; the shim keeps its name."""
    match = re.fullmatch(r"libcudnn_(\w+)\.so[.\d]*", name)
    return match[1] if match else name


def _order(cc: str) -> tuple[tuple[int, ...], str]:
    return version_key(cc), cc


def _wrapped(text: str, first: str, others: str) -> Iterator[str]:
    yield from textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=others, break_on_hyphens=False
    )


def _clean(line: str) -> str:
    """Names come from foreign files: nothing that a terminal would act on or cannot show."""
    return "".join(char if char.isprintable() else "?" for char in line)


def _release(release: Release) -> Iterator[str]:
    yield f"  - version: {_scalar(release.version)}"
    yield from (f"    build: {_scalar(release.build)}" for _ in range(bool(release.build)))
    yield f"    source: {release.source}"
    for field in ("libraries", "jit_libraries"):
        names = getattr(release, field)
        if names:
            yield f"    {field}:"
            text = f"[{', '.join(map(_scalar, names))}]"
            yield from _folded(text, "      ", "       ")
    yield "    variants:"
    for variant in release.variants:
        yield from _folded(_flow(variant), "      - ", "         ")
    for field in ("archives", "wheels"):
        rows = getattr(release, field)
        if rows:
            yield f"    {field}:"
            yield from (f"      - {_flow(row)}" for row in rows)


def _folded(text: str, first: str, others: str) -> list[str]:
    return textwrap.wrap(
        text,
        _YAML_WIDTH,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _flow(value: Row) -> str:
    """YAML in flow style: fields with their default left out, provenance last."""
    data = msgspec.to_builtins(value)
    facts = {k: v for k, v in data.items() if v is not None and k not in _PROVENANCE}
    return _value(facts | {k: data[k] for k in _PROVENANCE if k in data})


def _value(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return str(value) if isinstance(value, int) else _scalar(str(value))


def _scalar(text: object) -> str:
    """Text that YAML reads as text: quoted unless it is a plain word."""
    plain = str(text)
    if _BARE.fullmatch(plain) and plain.lower() not in _YAML_WORDS:
        return plain
    return json.dumps(plain)
