"""Rules about distribution packages and their repositories."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cudnn_doctor.checks import remedies
from cudnn_doctor.checks.context import Context, parse
from cudnn_doctor.checks.model import Evidence, Finding, Remedy
from cudnn_doctor.checks.registry import Skip, rule
from cudnn_doctor.machine.model import Package, Repository

_NVIDIA_NAME = re.compile(r"(lib)?cudnn\d+(-(dev|devel|static|headers|samples))?(-cuda-\d+)?")
_DISTRO_NAMES = ("nvidia-cudnn", "nvidia-cuda-toolkit-cudnn")


def installed(context: Context) -> tuple[Package, ...]:
    """Distribution packages that matter. Raises Skip where none is known."""
    if not context.machine.packages:
        raise Skip("no distribution package of cuDNN or CUDA is known")
    return context.machine.packages


def _runtime_of(name: str) -> str:
    """The run-time package that a development package belongs to."""
    return re.sub(r"-(dev|devel|static|headers)\b", "", name)


@rule("apt-version-pin-conflict", "packages")
def version_pin_conflict(context: Context) -> Iterator[Finding]:
    """Development and run-time packages of cuDNN are of different versions."""
    packages = {p.name: p for p in installed(context)}
    for name, package in packages.items():
        runtime = packages.get(_runtime_of(name))
        if runtime is None or runtime.name == name or "cudnn" not in name:
            continue
        if _upstream(runtime.version) == _upstream(package.version):
            continue
        held = [p.name for p in (package, runtime) if p.held]
        want = {runtime.name: package.version, name: package.version}
        yield Finding(
            id="apt-version-pin-conflict",
            severity="warning" if not context.machine.partial else "error",
            title=f"{name} is {package.version}, {runtime.name} is {runtime.version}",
            culprit=f"{runtime.name} {runtime.version}",
            seen=(
                Evidence(what=f"{name} {package.version}", how=package.manager or "packages"),
                Evidence(what=f"{runtime.name} {runtime.version}", how=package.manager),
                *((Evidence(what=f"held: {', '.join(held)}"),) if held else ()),
            ),
            why="the development package depends on exactly its own version of the run-time one:"
            " the next installation fails with unmet dependencies.",
            remedies=(
                remedies.install_exactly(context, want, title="install both of one version"),
            ),
        )


def _upstream(version: str) -> str:
    return version.partition("-")[0]


@rule("apt-wrong-distro-repo", "packages", also=("rpm-repo-conflict",))
def wrong_distro_repo(context: Context) -> Iterator[Finding]:
    """An NVIDIA repository of another distribution release is configured."""
    system = context.machine.system
    enabled = [r for r in context.machine.repositories if r.enabled and r.distro]
    if not enabled or not system.distro_id or not system.distro_version:
        raise Skip("no NVIDIA repository is configured, or the distribution is not known")
    right = _directories(context)
    for repository in enabled:
        if not right or repository.distro in right or _foreign_ok(repository):
            continue
        apt = repository.manager == "apt"
        new = repository.url.replace(repository.distro, right[0])
        yield Finding(
            id="apt-wrong-distro-repo" if apt else "rpm-repo-conflict",
            severity="error" if context.machine.partial else "warning",
            title=f"NVIDIA repository for {repository.distro} on {system.distro_id}"
            f" {system.distro_version}",
            culprit=repository.file or repository.url,
            seen=(
                Evidence(what=repository.url, where=repository.file, how="sources"),
                Evidence(what=f"{system.distro_id} {system.distro_version}", how="os-release"),
            ),
            why="its packages depend on libraries of another release: unmet dependencies, or a"
            " driver built for another kernel.",
            remedies=(
                Remedy(
                    title=f"name the repository {right[0]}",
                    commands=(
                        remedies.as_root(
                            context,
                            f"sed -i 's#{repository.distro}#{right[0]}#g' {repository.file}",
                        ),
                        remedies.as_root(context, "apt-get update" if apt else "dnf makecache"),
                    )
                    if repository.file
                    else (),
                    needs_root=True,
                    changes=f"{repository.file} -> {new}",
                    safety="caution",
                ),
            ),
        )


def _directories(context: Context) -> list[str]:
    """NVIDIA's directory names for this distribution release."""
    system = context.machine.system
    version = system.distro_version or ""
    exact = f"{system.distro_id} {version}"
    major = f"{system.distro_id} {version.split('.')[0]}"
    rows = context.matrix.repositories
    return [row.distro for row in rows if exact in row.ids or major in row.ids]


def _foreign_ok(repository: Repository) -> bool:
    """Repositories without a distribution of their own."""
    return repository.distro in ("wsl-ubuntu", "cross-linux-sbsa")


@rule("apt-repos-mixed", "packages", also=("rpm-repo-conflict",))
def repos_mixed(context: Context) -> Iterator[Finding]:
    """NVIDIA's and the distribution's cuDNN packages are both installed."""
    packages = installed(context)
    theirs = [p for p in packages if p.name in _DISTRO_NAMES]
    ours = [p for p in packages if _NVIDIA_NAME.fullmatch(p.name) and p not in theirs]
    if not theirs or not ours:
        return
    apt = theirs[0].manager in ("dpkg", "")
    yield Finding(
        id="apt-repos-mixed" if apt else "rpm-repo-conflict",
        severity="warning",
        title=f"{theirs[0].name} of the distribution beside {ours[0].name} of NVIDIA",
        culprit=theirs[0].name,
        seen=tuple(
            Evidence(what=f"{p.name} {p.version}", how=p.origin or p.manager)
            for p in (*theirs, *ours[:3])
        ),
        why="both put libcudnn into the same folders under different versions and depend on"
        " different CUDA packages; updates pull in two directions.",
        remedies=(
            remedies.remove_packages(
                context, *(p.name for p in theirs), title="keep NVIDIA's, remove the other"
            ),
        ),
    )


@rule("package-layout-change", "packages")
def layout_change(context: Context) -> Iterator[Finding]:
    """From 9.10 on the -dev package itself ships the unversioned links."""
    for package in installed(context):
        version = parse(re.sub(r"[-+~].*", "", package.version))
        dev = re.fullmatch(r"(lib)?cudnn9-dev(el)?(-cuda-\d+)?", package.name)
        if not dev or version is None or version.release < (9, 10, 0):
            continue
        yield Finding(
            id="package-layout-change",
            severity="info",
            title=f"{package.name} {package.version} owns libcudnn.so itself",
            culprit=package.name,
            seen=(Evidence(what=f"{package.name} {package.version}", how=package.manager),),
            why="scripts that make the unversioned links by hand fail with 'File exists' from 9.10"
            " on; older packages left them to update-alternatives.",
            remedies=(Remedy(title="let such scripts use ln -sfn, or leave the links alone"),),
        )
