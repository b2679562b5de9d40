"""`describe`: a person's description of a machine, turned into a partial `Machine`.

Bug reports tell facts as short phrases ("torch 2.4.0+cu121 (conda)", "RTX 4090 (CC 8.9)",
"535.183.01 (CUDA 12.2)"). General rules read them; what no rule reads is kept in ``notes``.
Nothing is guessed: what is not told stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cudnn_doctor.machine.described_libs import describe_copies
from cudnn_doctor.machine.described_system import describe_system
from cudnn_doctor.machine.model import (
    CacheEntry,
    CudnnCopy,
    Distribution,
    Driver,
    Environment,
    Framework,
    Gpu,
    LoaderConfig,
    Machine,
    RecordProblem,
    Toolkit,
)

_LOOSE_ONLY = {"os", "gpu", "cudnn_copies", "cuda", "env", "ldconfig_has_cudnn"}
_READ = _LOOSE_ONLY | {"driver", "frameworks", "tool", "notes"}
_NAMES = {
    "pytorch": "torch",
    "tensorflow-gpu": "tensorflow",
    "tf": "tensorflow",
    "tf-nightly": "tensorflow",
    "onnxruntime-gpu": "onnxruntime",
    "ort": "onnxruntime",
    "jaxlib": "jax",
    "jax-cuda12-plugin": "jax",
    "jax-cuda13-plugin": "jax",
    "paddlepaddle-gpu": "paddle",
    "paddlepaddle": "paddle",
    "cupy-cuda11x": "cupy",
    "cupy-cuda12x": "cupy",
    "cupy-cuda13x": "cupy",
    "transformer_engine": "transformer-engine",
}
_VERSION = r"\d+(?:\.\d+)+(?:\.?(?:post|dev|rc|a|b)\d+)?"
_DIST = re.compile(r"\b(nvidia-[a-z0-9]+(?:-[a-z0-9]+)*)\b\s*[=@]{0,2}\s*v?(\d+(?:\.\d+)*)?", re.I)
_CU_TAG = re.compile(r"\+?\bcu(\d{2,3})x?\b", re.I)
_CUDA_WORD = re.compile(r"\bCUDA\s*v?(\d+(?:\.\d+)?)|\bcuda(1[0-9])\b", re.I)
_BUILT = re.compile(
    r"(?:built (?:with|against)|compiled (?:with|against)) (?:cuDNN )?(\d[\d.]*)", re.I
)
_CUDNN = re.compile(r"cuDNN\s*v?(\d+(?:\.\d+)*)", re.I)
_DRIVER = re.compile(r"\b(\d{3}\.\d{2,3}(?:\.\d{1,3})?)\b")


def is_loose(data: Mapping[str, Any]) -> bool:
    """Whether ``data`` is a description by hand and not (a part of) our own schema."""
    if _LOOSE_ONLY & data.keys() or isinstance(data.get("driver"), str):
        return True
    frameworks = data.get("frameworks")
    told = isinstance(frameworks, str) or (
        isinstance(frameworks, list) and any(isinstance(item, str) for item in frameworks)
    )
    return told or isinstance(data.get("notes"), str)


def describe(data: Mapping[str, Any]) -> Machine:
    """The facts of a description, ``partial=True``; never raises on odd values."""
    notes: list[str] = []
    for key, value in data.items():
        if key in ("notes", "tool"):
            notes.extend(phrases(value))
        elif key not in _READ:
            notes.append(" ".join([str(key), *phrases(value)]))
    system = describe_system(phrases(data.get("os")), notes)
    environ = _environ(data.get("env"), notes)
    frameworks, distributions = _frameworks(phrases(data.get("frameworks")), notes)
    copies, more = describe_copies(phrases(data.get("cudnn_copies")), notes)
    distributions = _with_missing_files([*distributions, *more.distributions], copies)
    environments = (
        (Environment(prefix="", distributions=tuple(distributions)),) if distributions else ()
    )
    return Machine(
        tool="",
        partial=True,
        system=system,
        gpus=_gpus(phrases(data.get("gpu")), notes),
        driver=_driver(phrases(data.get("driver")), phrases(data.get("os")), notes),
        environ=environ,
        loader=_loader(data.get("ldconfig_has_cudnn"), copies),
        libraries=more.libraries,
        copies=copies,
        headers=more.headers,
        toolkits=_toolkits(phrases(data.get("cuda")), notes),
        environments=environments,
        frameworks=frameworks,
        packages=more.packages,
        notes=tuple(dict.fromkeys(note for note in notes if note)),
    )


def phrases(value: object) -> list[str]:
    """Any value of a description as a flat list of phrases."""
    return list(_phrases(value, 0))


def _phrases(value: object, depth: int) -> Iterator[str]:
    if value is None or depth > 5:
        return
    if isinstance(value, Mapping):
        for key, item in value.items():
            rest = " ".join(_phrases(item, depth + 1))
            yield f"{key} {rest}".strip()
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _phrases(item, depth + 1)
    else:
        text = " ".join(str(value).split())
        if text and text != "null":
            yield text


def _environ(value: object, notes: list[str]) -> dict[str, str]:
    """Variables; ``unset`` (and the like) is an empty value, prose around paths goes to notes."""
    if not isinstance(value, Mapping):
        pairs = [item.split("=", 1) for item in phrases(value)]
        value = {pair[0].strip(): pair[1] for pair in pairs if len(pair) == 2}
    result = {}
    for key, item in value.items():
        name, text = str(key), " ".join(phrases(item))
        plain = re.sub(r"\s*\(.*\)\s*$", "", text)
        if re.match(r"(not set|unset|empty|none)\b", plain, re.I):
            result[name] = ""
        elif not name.endswith("PATH") or re.fullmatch(r"[~$/.][^\s]*", plain):
            result[name] = plain
        else:
            paths = re.findall(r"(?:(?<=\s)|^)[$~]?/[^\s,;()]+|\$\{?\w+\}?/[^\s,;()]+", plain)
            result[name] = ":".join(paths)
        if plain != result[name] or plain != text:
            notes.append(f"{name}: {text}")
    return result


def _frameworks(
    items: list[str], notes: list[str]
) -> tuple[tuple[Framework, ...], list[Distribution]]:
    frameworks: list[Framework] = []
    distributions: list[Distribution] = []
    for item in items:
        if re.match(r"(no|without|not)\b", item, re.I):
            notes.append(item)
            continue
        dist = _DIST.match(item)
        if dist:
            distributions.append(Distribution(name=dist[1].lower(), version=dist[2] or ""))
            continue
        found = re.match(
            rf"([A-Za-z][\w.-]*?(?:-cuda\d+x)?)(?:\s*[=@]=?\s*|\s+|$)v?({_VERSION}|\d+)?", item
        )
        if found is None:
            notes.append(item)
            continue
        cudnn = _CUDNN.match(item)
        if cudnn:
            notes.append(item)
            continue
        frameworks.append(_framework(found[1], found[2] or "", item, item[found.end() :]))
    return tuple(frameworks), distributions


def _framework(word: str, version: str, item: str, rest: str) -> Framework:
    name = _NAMES.get(word.lower(), word.lower())
    local = re.match(r"(\+[\w.]+)", rest)
    if local:
        version += local[1]
    cuda: str | None = None
    tag = _CU_TAG.search(item)
    told = _CUDA_WORD.search(item)
    if re.search(r"\+cpu\b|\bCPU[- ]only\b", item, re.I):
        cuda = "cpu"
    elif tag:
        digits = tag[1]
        cuda = f"{digits[:-1]}.{digits[-1]}" if len(digits) == 3 else digits[:2]
        if digits in ("75", "80", "90", "91", "92"):
            cuda = f"{digits[0]}.{digits[1]}"
    elif told:
        cuda = told[1] or told[2]
    elif suffix := re.search(r"cuda(1\d)", word):
        cuda = suffix[1]
    built = _BUILT.search(item) or _CUDNN.search(rest)
    return Framework(
        name=name,
        distribution=word.lower(),
        version=version,
        cuda=cuda,
        cudnn_built=built[1].rstrip(".") if built else None,
    )


def _gpus(items: list[str], notes: list[str]) -> tuple[Gpu, ...] | None:
    gpus: list[Gpu] = []
    for item in items:
        if re.match(r"(none|no (nvidia )?gpu)\b", item, re.I):
            return ()
        cc = re.search(r"\bCC\s*(\d+\.\d)(?:\s*/\s*(\d+\.\d))?|\bsm_?(\d{2,3})\b", item, re.I)
        memory = re.search(r"(\d+)\s*Gi?B\b", item)
        name = re.split(r"\s*\(|\s+\d+\s*Gi?B\b|,|\s+with\s", item)[0].strip()
        count = re.match(r"(\d+)\s*[x\N{MULTIPLICATION SIGN}]\s*", name)
        if count:
            name = name[count.end() :]
        capability = None
        if cc:
            capability = cc[1] or f"{cc[3][:-1]}.{cc[3][-1]}"
        for _ in range(min(int(count[1]), 64) if count else 1):
            gpus.append(
                Gpu(
                    index=len(gpus),
                    name=name,
                    compute_capability=capability,
                    memory_total=int(memory[1]) << 30 if memory else None,
                    mig_enabled=True if re.search(r"\bMIG\b", item) else None,
                )
            )
        extra = re.search(r"\b(with|class|laptop|NVSwitch|MIG|no tensor cores)\b.*", item, re.I)
        if extra or (cc and cc[2]):
            notes.append(item)
    return tuple(gpus) or None


def _driver(items: list[str], system: list[str], notes: list[str]) -> Driver:
    text = "; ".join(items)
    tegra = re.search(r"\b(?:JetPack\s*\d[\d.]*|L4T\s*R?\d[\d.]*)", "; ".join(system), re.I)
    jetpack = tegra[0] if tegra else None
    if not text:
        return Driver(jetpack=jetpack)
    notes.append(f"driver: {text}")
    cuda = re.search(r"\((?:CUDA\s*)?(\d{1,2}\.\d)\)|CUDA\s*(\d{1,2}\.\d)", text, re.I)
    kernel = re.search(r"kernel(?:\s+module)?\s*:?\s*(\d{3}\.[\d.]+\d)", text, re.I)
    library = re.search(
        r"(?:user(?:[- ]space)?(?:\s+librar(?:y|ies))?|librar(?:y|ies)|libnvidia-ml\S*)\s*:?\s*"
        r"(\d{3}\.[\d.]+\d)",
        text,
        re.I,
    )
    first = _DRIVER.search(text) or re.search(r"\b(\d{3})\b", text)
    version = kernel[1] if kernel else first[1] if first else None
    mismatch = kernel and library and kernel[1] != library[1]
    return Driver(
        version=version,
        kernel_version=kernel[1] if kernel else None,
        library_version=library[1] if library else None,
        cuda=(cuda[1] or cuda[2]) if cuda else None,
        nvml_error="NVML_ERROR_LIB_RM_VERSION_MISMATCH" if mismatch else None,
        jetpack=jetpack,
    )


def _toolkits(items: list[str], notes: list[str]) -> tuple[Toolkit, ...] | None:
    toolkits = []
    for item in items:
        if re.match(r"(none|no |not installed)", item, re.I):
            return ()
        found = re.search(r"(?<![\w.])v?(\d{1,2}\.\d{1,2})(?:\.\d+)*", item)
        if found is None or re.search(r"\banother\b|\beither\b", item):
            notes.append(f"cuda: {item}")
            continue
        kind = "distro" if "nvidia-cuda-toolkit" in item or "distribution" in item else "toolkit"
        path = re.search(r"(?<!\S)/[^\s,;()]+", item)
        toolkits.append(
            Toolkit(path=path[0] if path else "", version=found[1], kind=kind, nvcc=found[1])
        )
        if re.search(r"[A-Za-z]{4}", item.replace("toolkit", "")):
            notes.append(f"cuda: {item}")
    return tuple(toolkits) or None


def _loader(has_cudnn: object, copies: tuple[CudnnCopy, ...] | None) -> LoaderConfig:
    told = str(has_cudnn).lower()
    if told in ("false", "no", "0"):
        return LoaderConfig(cache=())
    if told not in ("true", "yes", "1"):
        return LoaderConfig()
    entries = tuple(
        CacheEntry(soname=f"libcudnn.so.{c.major}", path=f"{c.folder}/libcudnn.so.{c.major}")
        for c in copies or ()
        if c.kind in ("system", "toolkit") and c.major
    )
    return LoaderConfig(cache=entries or None)


def _with_missing_files(
    distributions: list[Distribution], copies: tuple[CudnnCopy, ...] | None
) -> list[Distribution]:
    """Wheels of cuDNN whose folder is said to be empty do not match their RECORD."""
    empty = [c.folder for c in copies or () if c.kind == "wheel" and c.lacks == ("*",)]
    if not empty:
        return distributions
    problem = RecordProblem(path="nvidia/cudnn/lib/", problem="missing")
    return [
        Distribution(name=d.name, version=d.version, record_checked=1, record_problems=(problem,))
        if d.name.startswith("nvidia-cudnn")
        else d
        for d in distributions
    ]
