"""Plans for a Python environment: cuDNN's wheel, with the cuBLAS and NVRTC that it loads.

The environment's packages are kept aside first; twins that own the same files and placeholders go
before the wheel comes; the wheel comes alone, by the matrix's hash; its companions come by the
index's hashes where it told them at plan time, else by ordinary resolution. What is there already
and whole stays.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cudnn_doctor.errors import NothingChanged
from cudnn_doctor.install.plan import AnyStep, GuardPackages, Plan, Prove, Run
from cudnn_doctor.install.request import InstallRequest
from cudnn_doctor.install.wheels import companions, pins
from cudnn_doctor.install.wheels import environment as environments
from cudnn_doctor.install.wheels.environment import Installer
from cudnn_doctor.install.wheels.image import plan_image
from cudnn_doctor.install.wheels.space import space_for
from cudnn_doctor.machine.model import Distribution, Environment, Machine
from cudnn_doctor.matrix import query
from cudnn_doctor.matrix.model import Matrix, Wheel

_PLACEHOLDERS = ("nvidia-cudnn", "nvidia-cublas", "nvidia-cuda-nvrtc")


def plan_wheel(request: InstallRequest, machine: Machine, matrix: Matrix) -> Plan:
    """A plan that puts one cuDNN wheel into an environment.

    Raises DoctorError: NOTHING_CHANGED when no such wheel is known, the environment does not allow
    it, or a pin would break and ``break_pins`` is not set; USAGE when there is no environment.
    """
    wheel = _wheel(request, matrix)
    if request.fresh:
        return plan_image(request, pins.hashed(wheel), f"{wheel.package} {wheel.version}")
    environment = environments.choose(request.python, machine)
    installer = environments.installer_for(environment)
    present = {d.name: d for d in environment.distributions if d.installer != "conda"}
    drop = [d for d in present.values() if _is_in_the_way(d, wheel)]
    broken = list(pins.broken_by(environment, wheel, drop))
    if broken and not request.break_pins:
        raise pins.refusal(broken, wheel, environment)
    runs = _runs(request, wheel, environment, installer, drop)
    site = environments.site_of(environment)
    guard = GuardPackages(
        title="keep what is replaced for a rollback (until the next change here)",
        site_packages=site,
        names=("nvidia",),
    )
    steps: list[AnyStep] = [guard, *with_rollback(runs, guard, present, installer, matrix)]
    proof = Prove(
        title="check the files and load them",
        folder=f"{site}/nvidia/cudnn/lib",
        version=request.version,
        sonames=query.sublibraries(matrix, request.release, request.cuda, request.flavour) or (),
    )
    return Plan(
        action="install",
        method="wheel",
        version=request.version,
        cuda=request.cuda,
        target=environment.prefix,
        steps=(*steps, proof) if runs else (proof,),
        reasons=(*request.reasons, *_reasons(environment, wheel, installer, runs)),
        warnings=tuple(_warnings(request, environment, broken, drop)),
        space_needed=space_for(
            runs, {**request.sizes, wheel.package: wheel.size or 0}, site, installer
        ),
    )


def _wheel(request: InstallRequest, matrix: Matrix) -> Wheel:
    wheel = query.wheel_for(matrix, request.version, request.cuda, request.arch, request.flavour)
    if wheel is None or not wheel.sha256:
        raise NothingChanged(
            f"no wheel of cuDNN {request.version} ({request.flavour}) for CUDA {request.cuda} on "
            f"{request.platform} is known with its SHA-256",
            next_step=f"see `cudnn-doctor matrix show {request.release}`, or use --method tarball",
        )
    return wheel


# -- what is in the way, and what would break


def _is_in_the_way(dist: Distribution, wheel: Wheel) -> bool:
    """A placeholder, or another cuDNN wheel that owns the same libraries."""
    if dist.name in _PLACEHOLDERS and dist.version.startswith("0.0"):
        return True
    if dist.name == wheel.package or not dist.name.startswith("nvidia-cudnn-"):
        return False
    major = wheel.version.split(".")[0]
    libraries = [f for f in dist.files if ".so" in f]
    if libraries:
        return any(f.endswith(f"libcudnn.so.{major}") for f in libraries)
    return dist.name[13:].startswith(("cu", "jit-cu")) and dist.version.split(".")[0] == major


# -- the commands


def _runs(
    request: InstallRequest,
    wheel: Wheel,
    environment: Environment,
    installer: Installer,
    drop: list[Distribution],
) -> list[Run]:
    """Uninstall what is in the way, then cuDNN by its hash, then what it lacks."""
    runs = []
    if drop:
        names = [dist.name for dist in drop]
        runs.append(installer.uninstall(names, f"uninstall {_listed(names)}"))
    have = next((d for d in environment.distributions if d.name == wheel.package), None)
    same = have is not None and have.version == wheel.version
    again = bool(have and (drop or have.record_problems or have.record_checked is None))
    if again or not same:
        word = "reinstall" if again and same else "install"
        title = f"{word} {wheel.package} {wheel.version}"
        runs.append(installer.install([pins.hashed(wheel)], title, again=again))
    damaged = [d for d in companions.present(request, environment) if d.record_problems]
    if damaged:
        lines = [f"{d.name}=={d.version}" for d in damaged]
        runs.append(installer.install(lines, f"reinstall {_listed(lines)}", again=True))
    missing = companions.missing(request, environment)
    if missing:
        title = f"install {_listed([line.partition(' ')[0] for line in missing])}"
        runs.append(installer.install(missing, title, deps=not request.companions))
    return runs


def _listed(words: list[str]) -> str:
    return ", ".join(words)


# -- the way back after the commit


def with_rollback(
    runs: list[Run],
    guard: GuardPackages,
    present: dict[str, Distribution],
    installer: Installer,
    matrix: Matrix,
) -> list[Run]:
    """The whole way back hangs on the last command: a rollback goes backwards."""
    if not runs:
        return []
    touched = {pins.name_of(word) for run in runs for word in _words(run)}
    before = [present[name] for name in sorted(touched) if name in present]
    back: list[GuardPackages | Run] = [guard]
    if touched:
        names = sorted(touched)
        back.append(installer.uninstall(names, f"uninstall {_listed(names)}"))
    known = {d.name: line for d in before if (line := hashed_again(d, matrix))}
    plain = [f"{d.name}=={d.version}" for d in before if d.name not in known]
    for lines in ([*known.values()], plain):
        if lines:
            shown = _listed([line.split()[0] for line in lines])
            back.append(installer.install(lines, f"install {shown}", again=True))
    return [*runs[:-1], msgspec.structs.replace(runs[-1], rollback=tuple(back))]


def _words(run: Run) -> list[str]:
    """The requirements or names that a command is about."""
    if run.stdin:
        return run.stdin.splitlines()
    names = run.argv[run.argv.index("uninstall") + 1 :]
    return [word for word in names if not word.startswith("-") and "/" not in word]


def hashed_again(dist: Distribution, matrix: Matrix) -> str | None:
    """The requirement, by hashes of all architectures, of a cuDNN wheel that the matrix knows."""
    hashes = [
        f"--hash=sha256:{wheel.sha256}"
        for release in matrix.releases
        for wheel in release.wheels
        if (wheel.package, wheel.version) == (dist.name, dist.version) and wheel.sha256
    ]
    return " ".join([f"{dist.name}=={dist.version}", *hashes]) if hashes else None


# -- what is told


def _reasons(
    environment: Environment, wheel: Wheel, installer: Installer, runs: list[Run]
) -> Iterator[str]:
    yield f"into {environment.prefix} (Python {environment.python or 'of unknown version'})"
    if not runs:
        yield f"{wheel.package} {wheel.version} and what it needs are there already and whole"
    elif installer.is_uv:
        yield "by uv, which is here"
    else:
        yield "by the environment's own pip"


def _warnings(
    request: InstallRequest,
    environment: Environment,
    broken: list[pins.Pin],
    drop: list[Distribution],
) -> Iterator[str]:
    if request.unpinned:
        yield companions.not_pinned(request, companions.missing(request, environment))
    for pin in broken:
        yield f"breaks a requirement of {pin.owner.name} {pin.owner.version}: {pin}"
    for dist in drop:
        what = "a placeholder" if dist.name in _PLACEHOLDERS else "it owns the same files"
        yield f"removes {dist.name} {dist.version}: {what}"
    for dist in environment.distributions:
        if dist.installer == "conda" and "cudnn" in dist.name:
            yield f"conda's {dist.name} {dist.version} stays beside it in this environment"
