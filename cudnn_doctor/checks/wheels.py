"""Rules about the cuDNN wheels of Python environments: owners, RECORD, pins, look-alikes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cudnn_doctor.checks import remedies
from cudnn_doctor.checks.context import Context, cudnn_wheels, distribution, matches, parse
from cudnn_doctor.checks.model import Evidence, Finding
from cudnn_doctor.checks.registry import Skip, rule
from cudnn_doctor.machine.model import Distribution, Environment

_REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;()]*)\)?\s*(?:;(.*))?")


def environments(context: Context) -> tuple[Environment, ...]:
    """All Python environments. Raises Skip where none is known."""
    if not context.machine.environments:
        raise Skip("no Python environment is known")
    return context.machine.environments


def requirements(dist: Distribution, *, extras: bool = False) -> list[tuple[str, str]]:
    """``(name, specifier)`` of what a distribution requires; with ``extras`` also of what it
    requires only where an extra is asked for."""
    found = []
    for line in dist.requires:
        match = _REQUIREMENT.match(line)
        if match and (extras or "extra" not in (match[3] or "")):
            found.append((re.sub(r"[-_.]+", "-", match[1]).lower(), match[2].strip()))
    return found


def cudnn_folder(environment: Environment, dist: Distribution) -> str:
    """The folder that the wheel's libraries lie in."""
    site = dist.location or next(iter(environment.site_packages), environment.prefix)
    return f"{site}/nvidia/cudnn/lib"


@rule("cudnn-wheel-clobbered", "packages")
def wheel_clobbered(context: Context) -> Iterator[Finding]:
    """Two cuDNN wheels own the same files: the last one installed won."""
    for environment in environments(context):
        wheels = cudnn_wheels(environment)
        for first, second in ((a, b) for i, a in enumerate(wheels) for b in wheels[i + 1 :]):
            shared = _shared(first, second)
            if not shared:
                continue
            folder = cudnn_folder(environment, first)
            keep = _wanted(environment, (first, second))
            drop = tuple(d.name for d in (first, second) if d.name != keep.name)
            copy = context.copy_at(folder)
            on_disk = f"on disk: {copy.version}" if copy and copy.version else "on disk: a mixture"
            yield Finding(
                id="cudnn-wheel-clobbered",
                severity="error",
                title=f"{first.name} {first.version} and {second.name} {second.version} own the"
                " same files",
                culprit=f"{first.name}, {second.name}",
                subject=folder,
                seen=(
                    Evidence(what=f"{len(shared)} files owned twice, such as {shared[0]}"),
                    Evidence(what=on_disk, where=folder, how="file versions"),
                ),
                why="the last one installed overwrote the other's libraries, so one of the two"
                " frameworks loads a cuDNN of the wrong release or CUDA; removing either wheel"
                " deletes the files of both.",
                remedies=(
                    remedies.reinstall_wheels(environment, f"{keep.name}=={keep.version}", drop),
                ),
                avoid=(
                    "uninstalling only one of them: its files are the other's too",
                    "frameworks of two CUDA majors in one environment: make two environments",
                ),
            )


def _shared(first: Distribution, second: Distribution) -> list[str]:
    """Files that both wheels list; by their names where no RECORD is known."""
    if first.files and second.files:
        both = set(first.files) & set(second.files)
        return sorted(path for path in both if ".so" in path)
    one, other = parse(first.version), parse(second.version)
    if one and other and one.major == other.major:
        return [f"nvidia/cudnn/lib/libcudnn.so.{one.major}"]
    return []


def _wanted(environment: Environment, wheels: tuple[Distribution, ...]) -> Distribution:
    """The wheel that some installed distribution requires, else the newer CUDA flavour."""
    asked = {name for dist in environment.distributions for name, _ in requirements(dist)}
    required = [wheel for wheel in wheels if wheel.name in asked]
    return required[0] if len(required) == 1 else max(wheels, key=lambda wheel: wheel.name)


@rule("wheel-files-missing", "packages")
def wheel_files_missing(context: Context) -> Iterator[Finding]:
    """A wheel's RECORD does not match the disk."""
    for environment in environments(context):
        for dist in environment.distributions:
            problems = [p for p in dist.record_problems if p.problem in ("missing", "size", "hash")]
            ours = [p for p in problems if ".so" in p.path or p.path.endswith("/")]
            if not ours or not dist.name.startswith("nvidia-"):
                continue
            first = ours[0]
            folder = cudnn_folder(environment, dist)
            yield Finding(
                id="wheel-files-missing",
                severity="error",
                title=f"{dist.name} {dist.version}: {len(ours)} of its files are not as recorded",
                culprit=f"{dist.name} {dist.version}",
                subject=folder if "cudnn" in dist.name else environment.prefix,
                seen=tuple(
                    Evidence(
                        what=f"{p.problem}: expected {p.expected}, found {p.found}"
                        if p.problem != "missing"
                        else "missing",
                        where=p.path,
                        how="RECORD against the disk",
                    )
                    for p in ours[:6]
                ),
                why=f"pip believes that {dist.name} is installed and will not mend it unasked;"
                f" {first.path.rpartition('/')[2] or first.path} cannot be loaded as it should.",
                remedies=(
                    remedies.pip_install(
                        environment,
                        f"{dist.name}=={dist.version}",
                        title=f"reinstall {dist.name}",
                        force=True,
                    ),
                ),
                avoid=("pip install without --force-reinstall: 'already satisfied'",),
            )


@rule("pypi-placeholder-package", "packages")
def placeholder_package(context: Context) -> Iterator[Finding]:
    """The index's placeholder project is installed instead of a -cuNN package."""
    for environment in environments(context):
        for name in ("nvidia-cudnn", "nvidia-cublas", "nvidia-cuda-nvrtc"):
            dist = distribution(environment, name)
            if dist is None or not dist.version.startswith("0.0"):
                continue
            cuda = next(
                (f.cuda for f in context.machine.frameworks if f.cuda not in (None, "cpu")), None
            )
            suffix = f"cu{(cuda or '12').split('.')[0]}"
            yield Finding(
                id="pypi-placeholder-package",
                severity="error",
                title=f"{name} {dist.version} is a placeholder without libraries",
                culprit=f"{name} {dist.version}",
                subject=environment.prefix,
                seen=(
                    Evidence(what=f"{name} {dist.version}", where=dist.location, how="metadata"),
                ),
                why="the project of that name on the index holds no library; the real ones carry"
                " the CUDA major in their names.",
                remedies=(
                    remedies.pip_install(
                        environment, f"{name}-{suffix}", title=f"install {name}-{suffix} instead"
                    ),
                ),
            )


@rule("pip-pin-conflict", "packages")
def pip_pin_conflict(context: Context) -> Iterator[Finding]:
    """The installed cuDNN wheel is not the one that an installed package pins."""
    for environment in environments(context):
        for dist in environment.distributions:
            for name, specifier in requirements(dist):
                wheel = distribution(environment, name)
                if not name.startswith("nvidia-cudnn") or wheel is None or not specifier:
                    continue
                if not wheel.version or matches(wheel.version, specifier):
                    continue
                yield _pin_finding(environment, dist, wheel, specifier)


def _pin_finding(
    environment: Environment, dist: Distribution, wheel: Distribution, specifier: str
) -> Finding:
    pinned = parse(specifier.lstrip("=").split(",")[0])
    have = parse(wheel.version)
    older = bool(pinned and have and have.release[:2] < pinned.release[:2])
    other_major = bool(pinned and have and have.major != pinned.major)
    return Finding(
        id="pip-pin-conflict",
        severity="error" if older or other_major else "warning",
        title=f"{dist.name} {dist.version} pins {wheel.name}{specifier}, installed is"
        f" {wheel.version}",
        culprit=f"{wheel.name} {wheel.version}",
        subject=environment.prefix,
        seen=(
            Evidence(what=f"Requires-Dist: {wheel.name}{specifier}", where=dist.name),
            Evidence(what=f"installed: {wheel.version}", where=wheel.location, how="metadata"),
        ),
        why=f"{dist.name} was built and tested with the pinned release; "
        + (
            "an older one lacks what it was compiled against."
            if older or other_major
            else "a newer 9.x usually works, but the next pip or uv run takes it away again."
        ),
        remedies=(
            remedies.pip_install(
                environment, f"{wheel.name}{specifier}", title="install the pinned release"
            ),
        ),
    )
