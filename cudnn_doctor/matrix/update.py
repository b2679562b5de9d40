"""Merging of NVIDIA's ``redistrib_*.json`` manifests into a matrix, as text.

The text of the file is added to and otherwise left alone, so that comments and order stay. Only
what a manifest says is written: releases, builds, dates, CUDA flavours, archives.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from cudnn_doctor.errors import BadInput
from cudnn_doctor.matrix.load import from_yaml
from cudnn_doctor.matrix.model import Archive, Matrix, Release, Variant
from cudnn_doctor.matrix.query import release as find_release
from cudnn_doctor.matrix.query import variant_of
from cudnn_doctor.matrix.source import Document, Field
from cudnn_doctor.matrix.specs import version_key

_COMPONENTS = {"cudnn": "full", "cudnn_jit": "jit"}
_BUILD = re.compile(r"\d+\.\d+\.\d+\.\d+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_CUDA_IN_NAME = re.compile(r"_cuda(\d+(?:\.\d+)?)-archive")
_CUDA = re.compile(r"\d{1,2}(\.\d)?")
_PATH = re.compile(r"[A-Za-z0-9_./+-]+")
_UPDATED = re.compile(rb"(?m)^updated: .*$")


def read_manifest(text: bytes, name: str) -> Release:
    """The release that a manifest describes. Raises BadInput where it is not one of cuDNN's."""
    try:
        data = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadInput(f"{name}: not JSON: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("cudnn"), dict):
        raise BadInput(f"{name}: not a redist manifest of cuDNN (no object named cudnn)")
    build = data["cudnn"].get("version")
    if not isinstance(build, str) or not _BUILD.fullmatch(build):
        raise BadInput(f"{name}: cudnn.version: not a build number such as 9.10.2.21: {build!r}")
    date = data.get("release_date")
    archives = tuple(_archives(data, build, name))
    return Release(
        version=build.rpartition(".")[0],
        build=build,
        date=date if isinstance(date, str) and _DATE.fullmatch(date) else None,
        variants=tuple(
            Variant(cuda=cuda) for cuda in sorted({a.cuda for a in archives}, key=version_key)
        ),
        archives=archives,
    )


def merge(text: bytes, name: str, manifests: list[Release]) -> tuple[bytes, tuple[str, ...]]:
    """Add what the manifests have and the matrix lacks; returns the new text and what was added.

    Raises BadInput where the matrix is wrong or is not written in block style.
    """
    added: list[str] = []
    matrix = from_yaml(text, name)
    if not matrix.archive_source:
        raise BadInput(f"{name}: archive_source: missing, so new archives would have no source")
    for found in sorted(manifests, key=lambda r: version_key(r.build)):
        known = find_release(matrix, found.version)
        lacking = _lacking(known, found) if known else []
        if known and not lacking:
            continue
        page = _Page(text, name, matrix)
        if known:
            page.add_archives(known, lacking)
            added.append(f"{found.version}: {len(lacking)} archives")
        else:
            page.add_release(found)
            added.append(f"{found.version}: new release, {len(found.archives)} archives")
        page.renew(found.date)
        text = page.text
        matrix = from_yaml(text, name)
    return text, tuple(added)


def _lacking(known: Release, found: Release) -> list[Archive]:
    paths = {archive.path for archive in known.archives}
    return [
        msgspec.structs.replace(archive, version=archive.version or _other_build(known, found))
        for archive in found.archives
        if archive.path not in paths
    ]


def _other_build(known: Release, found: Release) -> str:
    return "" if found.build == known.build else found.build or ""


class _Page:
    """Text of a matrix that grows by whole lines."""

    def __init__(self, text: bytes, name: str, matrix: Matrix) -> None:
        self.text = text
        self.name = name
        self.matrix = matrix
        self.document = Document(text, name)
        self.column = self._dashes(("releases",))

    def add_release(self, found: Release) -> None:
        """Put a release where it belongs by its number."""
        document = self.document
        new = version_key(found.version)
        rows = [*self._rows(found)]
        newer = [i for i, r in enumerate(self.matrix.releases) if version_key(r.version) > new]
        if newer:
            at = document.line(("releases", newer[0])) - 1
            while at and document.lines[at - 1].lstrip().startswith("#"):
                at -= 1
            self._insert(at, [*rows, ""])
        else:
            last = document.span(("releases", len(self.matrix.releases) - 1))
            self._insert(last[1] if last else len(document.lines), ["", *rows])

    def add_archives(self, known: Release, new: list[Archive]) -> None:
        """Add archives, and flavours for a CUDA that the release had none for, to a release."""
        at = ("releases", self.matrix.releases.index(known))
        self._append((*at, "archives"), [_flow(archive) for archive in new])
        cudas = sorted({a.cuda for a in new if not variant_of(known, a.cuda)}, key=version_key)
        self._append((*at, "variants"), [self._variant(cuda) for cuda in cudas])

    def renew(self, date: str | None) -> None:
        """Bring the matrix's own date up to that of the newest manifest."""
        if date and date > self.matrix.updated:
            self.text = _UPDATED.sub(f'updated: "{date}"'.encode(), self.text, count=1)

    def _append(self, field: Field, items: list[str]) -> None:
        """Add entries at the end of a list of a release, which may not be there yet."""
        if not items:
            return
        indent = " " * (self.column + 4)
        rows = [f"{indent}- {item}" for item in items]
        span = self.document.span(field)
        if span:
            self._dashes(field)
            rows = [" " * span[2] + row.strip() for row in rows]
            self._insert(span[1], rows)
        else:
            release = self.document.span(field[:-1])
            end = release[1] if release else len(self.document.lines)
            self._insert(end, [f"{indent[2:]}{field[-1]}:", *rows])

    def _dashes(self, field: Field) -> int:
        """Column of the dashes of a list; raises BadInput where it is not in block style."""
        span = self.document.span(field)
        if span is None or not self.document.lines[span[0] - 1].lstrip().startswith("- "):
            raise self.document.error(field, "must be a list of one entry a line ('- ...')")
        return span[2]

    def _insert(self, after: int, rows: list[str]) -> None:
        lines = self.document.lines
        self.text = ("\n".join([*lines[:after], *rows, *lines[after:]]) + "\n").encode()
        self.document = Document(self.text, self.name)

    def _rows(self, found: Release) -> Iterator[str]:
        indent = " " * self.column
        yield f'{indent}- version: "{found.version}"'
        yield f'{indent}  build: "{found.build}"'
        if found.date:
            yield f'{indent}  date: "{found.date}"'
        yield f"{indent}  source: {self.matrix.archive_source}"
        yield f"{indent}  variants:"
        yield from (f"{indent}    - {self._variant(v.cuda)}" for v in found.variants)
        yield f"{indent}  archives:"
        yield from (f"{indent}    - {_flow(archive)}" for archive in found.archives)

    def _variant(self, cuda: str) -> str:
        return f'{{cuda: "{cuda}", source: {self.matrix.archive_source}}}'


def _flow(archive: Archive) -> str:
    """One archive on one line, text quoted."""
    parts = (
        f"{key}: {value}" if isinstance(value, int) else f'{key}: "{value}"'
        for key, value in msgspec.to_builtins(archive).items()
        if value is not None
    )
    return "{" + ", ".join(parts) + "}"


def _archives(data: dict[str, Any], build: str, name: str) -> Iterator[Archive]:
    for component, flavour in _COMPONENTS.items():
        section = data.get(component)
        if not isinstance(section, dict):
            continue
        version = section.get("version", build)
        for platform, files in section.items():
            if not platform.startswith("linux-") or not isinstance(files, dict):
                continue
            flat = {"": files} if "relative_path" in files else files
            for tag, record in flat.items():
                if isinstance(record, dict) and "relative_path" in record:
                    where = f"{name}: {component}.{platform}" + (f".{tag}" if tag else "")
                    fixed = {"platform": platform, "flavour": flavour}
                    if version != build:
                        fixed["version"] = version
                    yield _archive(record, fixed, tag, where)


def _archive(record: dict[str, Any], fixed: dict[str, str], tag: str, where: str) -> Archive:
    path = record["relative_path"]
    if not isinstance(path, str) or not _PATH.fullmatch(path) or ".." in path or path[0] == "/":
        raise BadInput(f"{where}.relative_path: not a path below the redist folder: {path!r}")
    named = _CUDA_IN_NAME.search(path)
    cuda = named[1] if named else tag.removeprefix("cuda")
    if not _CUDA.fullmatch(cuda):
        raise BadInput(f"{where}: for which CUDA is {path}?")
    for field, size in (("sha256", 64), ("md5", 32)):
        if not re.fullmatch(rf"[0-9a-f]{{{size}}}", str(record.get(field, "0" * size))):
            raise BadInput(f"{where}.{field}: not {size} lower-case hexadecimal digits")
    size_text = str(record.get("size", ""))
    return Archive(
        platform=fixed["platform"],
        cuda=cuda,
        flavour="jit" if fixed["flavour"] == "jit" else "full",
        version=fixed.get("version", ""),
        path=path,
        size=int(size_text) if size_text.isdecimal() else None,
        sha256=record.get("sha256"),
        md5=record.get("md5"),
    )
