"""Installed Python distributions, read from their metadata folders. Nothing is imported.

Formats: core metadata (METADATA, PKG-INFO), the "recording installed projects" specification
(RECORD, INSTALLER) and conda's ``conda-meta/<name>-<version>-<build>.json``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Distribution
from cudnn_doctor.machine.records import Comparer, is_cudnn_file, parse_libraries

_RELEVANT = re.compile(
    r"nvidia-.*|torch.*|triton|tensorflow.*|tf-nightly.*|jax.*|onnxruntime.*|ort-nightly.*"
    r"|ctranslate2|faster-whisper|whisperx|paddlepaddle.*|cupy.*|tensorrt.*|transformer-engine.*"
    r"|vllm|xformers|mxnet.*|numba.*|cuda-(python|bindings|core|toolkit|pathfinder)|dlib"
)
_CONDA_RELEVANT = re.compile(
    r"(lib)?cudnn.*|cudatoolkit.*|cuda-.*|libcublas.*|libnvjitlink.*|(lib)?py?torch.*|pytorch.*"
    r"|tensorflow.*|jax.*|onnxruntime.*|ctranslate2|cupy.*|paddlepaddle.*|tensorrt.*|vllm"
)
_METADATA_LIMIT = 1 << 18


class Metadata(NamedTuple):
    """The headers of interest of a METADATA file; empty where absent."""

    name: str = ""
    version: str = ""
    requires: tuple[str, ...] = ()


def normalise(name: str) -> str:
    """PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def is_relevant(name: str) -> bool:
    """Whether a distribution (normalised name) matters for cuDNN."""
    return _RELEVANT.fullmatch(name) is not None


def parse_metadata(text: str) -> Metadata:
    """Read the headers up to the first empty line; never raises."""
    name = version = ""
    requires: list[str] = []
    for line in text.splitlines():
        if not line.strip():
            break
        key, _, value = line.partition(":")
        value = value.strip()
        match key.lower():
            case "name":
                name = name or value
            case "version":
                version = version or value
            case "requires-dist" if is_relevant(_requirement_name(value)):
                requires.append(value)
    return Metadata(name, version, tuple(requires))


def _requirement_name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    return normalise(match[0]) if match else ""


def read_distributions(host: Host, folder: str, comparer: Comparer) -> list[Distribution]:
    """The relevant distributions of one site-packages folder, sorted by name."""
    found = []
    for entry in host.names(folder):
        if entry.endswith((".dist-info", ".egg-info")):
            stem = entry.rsplit(".", 1)[0]
            if is_relevant(normalise(stem.split("-")[0])):
                found.append(_read_one(host, folder, entry, comparer))
    return found


def _read_one(host: Host, folder: str, entry: str, comparer: Comparer) -> Distribution:
    path = f"{folder}/{entry}"
    text = (
        host.text(f"{path}/METADATA", _METADATA_LIMIT)
        or host.text(f"{path}/PKG-INFO", _METADATA_LIMIT)
        or host.text(path, _METADATA_LIMIT)
        or ""
    )
    metadata = parse_metadata(text)
    stem = [*entry.rsplit(".", 1)[0].split("-"), ""]
    installer = (host.text(f"{path}/INSTALLER", 256) or "").strip()
    record = host.text(f"{path}/RECORD", 1 << 25)
    entries = parse_libraries(record or "")
    compared = record is not None and installer != "conda"  # conda rewrites files, and owns them
    return Distribution(
        name=normalise(metadata.name or stem[0]),
        version=metadata.version or stem[1],
        location=folder,
        installer=installer,
        requires=metadata.requires,
        record_checked=len(entries) if compared else None,
        record_problems=comparer.compare(folder, entries) if compared else (),
        files=tuple(e.path for e in entries if e.path.startswith("nvidia/") or e.is_cudnn),
    )


def read_conda_packages(host: Host, prefix: str) -> list[Distribution]:
    """The relevant conda packages of a prefix, as distributions with installer ``conda``.

    Only cuDNN's own descriptions are read in full; of the others the file name tells enough.
    """
    found = []
    for entry in host.names(f"{prefix}/conda-meta"):
        parts = entry.removesuffix(".json").rsplit("-", 2)
        if not entry.endswith(".json") or len(parts) != 3:
            continue
        name, version, build = parts
        if not _CONDA_RELEVANT.fullmatch(name):
            continue
        files: tuple[str, ...] = ()
        depends: tuple[str, ...] = ()
        if "cudnn" in name:
            files, depends = _read_conda(host, f"{prefix}/conda-meta/{entry}")
        found.append(
            Distribution(
                name=normalise(name),
                version=version,
                location=prefix,
                installer="conda",
                build=build,
                requires=depends,
                files=files,
            )
        )
    return found


def _read_conda(host: Host, path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    import msgspec

    try:
        raw = msgspec.json.decode(host.bytes(path) or b"", type=dict[str, object])
        files = msgspec.convert(raw.get("files", []), list[str])
        depends = msgspec.convert(raw.get("depends", []), list[str])
    except msgspec.MsgspecError as error:
        host.fail("environments", f"{path}: {error}")
        return (), ()
    return tuple(file for file in files if is_cudnn_file(file)), tuple(depends)
