"""The frameworks of each environment: version, CUDA build, cuDNN built with, pins, native objects.

Names, requirement lines and small Python files read as text tell all of it; nothing is imported.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence

from cudnn_doctor.machine.catalogue import CATALOGUE, FrameworkDescriptor
from cudnn_doctor.machine.distributions import normalise
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Distribution, Environment, Framework

_LITERAL = r"""(?:'([^'\n]*)'|"([^"\n]*)"|(None|True|False))"""


def probe_frameworks(host: Host, environments: Sequence[Environment]) -> tuple[Framework, ...]:
    """All catalogued frameworks, by environment and then in the catalogue's order."""
    return tuple(
        _framework(host, environment, site, descriptor, own)
        for environment in environments
        for site in environment.site_packages
        for descriptor in CATALOGUE
        if (own := _own(descriptor, environment, site))
    )


def _own(
    descriptor: FrameworkDescriptor, environment: Environment, site: str
) -> list[Distribution]:
    """The framework's distributions in one folder, in the descriptor's order of preference."""
    here = [d for d in environment.distributions if d.location == site]
    return [
        distribution
        for pattern in descriptor.distributions
        for distribution in here
        if fnmatch.fnmatchcase(distribution.name, pattern)
    ]


def _framework(
    host: Host,
    environment: Environment,
    site: str,
    descriptor: FrameworkDescriptor,
    own: Sequence[Distribution],
) -> Framework:
    texts = [host.text(f"{site}/{name}", 1 << 16) or "" for name in descriptor.build_files]
    own = _installed_last(own, texts)
    main = own[0]
    binaries = [path for glob in descriptor.binaries for path in host.glob(glob, site)]
    pins = [line for d in own for line in d.requires if re.match(r"nvidia[-_.]cudnn", line, re.I)]
    return Framework(
        name=descriptor.name,
        distribution=main.name,
        version=main.version,
        environment=environment.prefix,
        location=f"{site}/{descriptor.package}",
        cuda=_cuda(host, site, descriptor, own, texts),
        cudnn_built=_cudnn_built(main, binaries, texts),
        pins=tuple(dict.fromkeys(pins)),
        binaries=tuple(dict.fromkeys(binaries)),
    )


def _installed_last(own: Sequence[Distribution], texts: Sequence[str]) -> Sequence[Distribution]:
    """The one of several distributions over one folder whose files are there, if they tell."""
    named = next((name for text in texts if (name := stated(text, "package_name"))), None)
    return [d for d in own if named and d.name == normalise(named)] or own


def _cuda(
    host: Host,
    site: str,
    descriptor: FrameworkDescriptor,
    own: Sequence[Distribution],
    texts: Sequence[str],
) -> str | None:
    """``12.8``, ``12``, ``cpu`` or None; the most direct evidence first."""
    for text in texts:
        if stated(text, "is_cuda_build") == "False":
            return "cpu"
        if stated(text, "package_name") == "onnxruntime" and not stated(text, "cuda_version"):
            return "cpu"  # an overwritten onnxruntime-gpu leaves its provider libraries behind
        version = stated(text, "cuda") or stated(text, "cuda_version")
        if version:
            return _major_minor(version) or "cpu"
    named = [cuda for distribution in own if (cuda := _cuda_of_name(distribution))]
    if named:
        return named[0]
    marks = descriptor.gpu_marks
    if marks and not any(host.glob(mark, site) for mark in marks):
        return "cpu"
    return next(_cuda_of_requirements(own), None)


def _cuda_of_name(distribution: Distribution) -> str | None:
    local = distribution.version.partition("+")[2]
    if local.startswith("cpu") or distribution.name.endswith("-cpu"):
        return "cpu"
    match = (
        re.match(r"cu(?:da)?(\d\d)(\d?)", local)
        or re.search(r"-cu(?:da)?(\d\d)(\d?)(?:x|-|$)", distribution.name)
        or re.search(r"paddle.*\.post(\d\d)(\d)$", f"{distribution.name}{distribution.version}")
    )
    return ".".join(part for part in match.groups() if part) if match else None


def _cuda_of_requirements(own: Sequence[Distribution]) -> Iterator[str]:
    for distribution in own:
        for line in distribution.requires:
            match = re.match(r"nvidia-(?:cudnn|cublas|cuda-runtime)-cu(\d\d)\b", line)
            if match:
                yield match[1]


def _cudnn_built(
    distribution: Distribution, binaries: Sequence[str], texts: Sequence[str]
) -> str | None:
    for text in texts:
        version = re.match(r"\d+(\.\d+)*", stated(text, "cudnn_version") or "")
        if version and version[0] != "0.0.0":
            return version[0]
    for path in binaries:
        # a copy that auditwheel took in: libcudnn-74a4c495.so.9.1.0
        match = re.search(r"/libcudnn-[0-9a-f]+\.so\.(\d+\.\d+\.\d+)$", path)
        if match:
            return match[1]
    match = re.search(r"\+cuda\d+\.cudnn(\d)(\d+)$", distribution.version)
    return f"{match[1]}.{match[2]}" if match else None


def stated(text: str, name: str) -> str | None:
    """The literal that a Python file gives to a name, by assignment or in a table (``name =
    'x'``, ``name: T = None``, ``('name', 'x')``, ``{'name': 'x'}``); None where it does not."""
    quoted = rf"""["']{name}["']"""
    pattern = rf"(?:^{name}[ \t]*(?::[^=\n]*)?=|\(\s*{quoted}\s*,|{quoted}\s*:)\s*{_LITERAL}"
    match = re.search(pattern, text, re.M)
    return next((group for group in match.groups() if group is not None), None) if match else None


def _major_minor(version: str) -> str | None:
    match = re.match(r"\d+(\.\d+)?", version)
    return match[0] if match else None
