"""Remedies with the exact commands for this machine: its package manager, its environments."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from cudnn_doctor.checks.context import Context
from cudnn_doctor.checks.model import Links, Remedy, SearchPath, Wheels
from cudnn_doctor.machine.model import Environment, Package
from cudnn_doctor.matrix import query

_MANAGER_OF = {
    "apt": ("debian", "ubuntu", "linuxmint", "pop", "raspbian"),
    "dnf": ("fedora", "rhel", "centos", "rocky", "almalinux", "amzn", "ol", "azurelinux"),
    "zypper": ("opensuse", "opensuse-leap", "opensuse-tumbleweed", "sles", "suse"),
    "pacman": ("arch", "manjaro", "endeavouros"),
    "apk": ("alpine",),
}
_INSTALL = {
    "apt": "apt-get install -y",
    "dnf": "dnf install -y",
    "zypper": "zypper --non-interactive install",
    "pacman": "pacman -S --needed",
    "apk": "apk add",
}
_INSTALL_EXACT = {
    "apt": ("apt-get install -y --allow-downgrades", "="),
    "dnf": ("dnf install -y", "-"),
    "zypper": ("zypper --non-interactive install --oldpackage", "="),
}
"""The command, and what stands between a package's name and its version."""
_REMOVE = {
    "apt": "apt-get remove -y",
    "dnf": "dnf remove -y",
    "zypper": "zypper --non-interactive remove",
    "pacman": "pacman -R",
    "apk": "apk del",
}


def manager(context: Context) -> str | None:
    """The package manager of this machine's distribution, ``apt`` and the like."""
    system = context.machine.system
    present = [name for name in system.package_managers if name in _INSTALL]
    if len(present) == 1:
        return present[0]
    for family in (system.distro_id, *system.distro_like):
        for name, ids in _MANAGER_OF.items():
            if family in ids:
                return name
    return present[0] if present else None


def as_root(context: Context, command: str) -> str:
    """The command with ``sudo`` where this user is not root."""
    return command if context.machine.system.is_root else f"sudo {command}"


def pip_command(environment: Environment | None, verb: str, *arguments: str) -> str:
    """A pip command line for one environment, by its own Python (by uv where pip is not there)."""
    words = " ".join(shlex.quote(argument) for argument in arguments)
    if environment is None:
        return f"python3 -m pip {verb} {words}"
    python = shlex.quote(environment.executable or f"{environment.prefix}/bin/python")
    installers = {d.installer for d in environment.distributions if d.installer}
    if environment.kind == "uv" or installers == {"uv"}:
        words = words.replace("--force-reinstall", "--reinstall")
        words = words.removeprefix("-y ")
        return f"uv pip {verb} --python {python} {words}"
    return f"{python} -m pip {verb} {words}"


def pip_install(
    environment: Environment | None, *requirements: str, title: str, force: bool = False
) -> Remedy:
    """Install requirements into an environment."""
    extra = ("--force-reinstall", "--no-deps") if force else ()
    where = environment.prefix if environment else "the environment"
    return Remedy(
        title=title,
        commands=(pip_command(environment, "install", *extra, *requirements),),
        changes=f"packages in {where}",
        automatic=environment is not None,
        action=Wheels(environment=environment.prefix, put=requirements, again=force)
        if environment
        else None,
    )


def reinstall_wheels(
    environment: Environment | None, keep: str, drop: tuple[str, ...] = ()
) -> Remedy:
    """Take wheels that share files out of an environment and put the wanted one back whole."""
    commands = [pip_command(environment, "uninstall", "-y", *drop)] if drop else []
    commands.append(pip_command(environment, "install", "--force-reinstall", "--no-deps", keep))
    return Remedy(
        title=f"reinstall {keep.partition('=')[0]} whole",
        commands=tuple(commands),
        changes=f"the cuDNN files in {environment.prefix if environment else 'the environment'}",
        safety="caution" if drop else "safe",
        automatic=environment is not None,
        action=Wheels(environment=environment.prefix, drop=drop, put=(keep,), again=True)
        if environment
        else None,
    )


def without_folders(context: Context, *folders: str) -> Remedy:
    """Take folders out of LD_LIBRARY_PATH for this shell."""
    rest = [folder for folder in context.search_path if folder not in folders]
    command = f"export LD_LIBRARY_PATH={shlex.quote(':'.join(rest))}"
    return Remedy(
        title=f"take {', '.join(folders)} out of LD_LIBRARY_PATH",
        commands=(command if rest else "unset LD_LIBRARY_PATH",),
        changes="this shell only; mend the file that sets it (profile, module, image ENV) as well",
        automatic=bool(context.machine.environments),
        action=SearchPath(drop=folders),
    )


def with_folder(*folders: str, title: str = "") -> Remedy:
    """Put folders in front of LD_LIBRARY_PATH for the program."""
    joined = ":".join(shlex.quote(folder) for folder in folders)
    return Remedy(
        title=title or "let the loader of that program see the copy",
        commands=(f"export LD_LIBRARY_PATH={joined}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}",),
        changes="this shell only",
        automatic=True,
        action=SearchPath(add=folders),
    )


def install_packages(context: Context, *names: str, title: str) -> Remedy:
    """Install distribution packages by this machine's package manager."""
    tool = manager(context)
    command = as_root(context, f"{_INSTALL.get(tool or '', 'apt-get install')} {' '.join(names)}")
    return Remedy(title=title, commands=(command,), needs_root=True, changes="system packages")


def install_exactly(context: Context, packages: Mapping[str, str], *, title: str) -> Remedy:
    """Bring packages (name -> version) to those versions, whatever holds them at others."""
    command, sign = _INSTALL_EXACT.get(manager(context) or "", _INSTALL_EXACT["apt"])
    words = " ".join(f"{name}{sign}{version}" for name, version in packages.items())
    held = [p for p in context.machine.packages if p.held and p.name in packages]
    released = dict.fromkeys(filter(None, map(release_command, held)))
    return Remedy(
        title=title,
        commands=tuple(as_root(context, line) for line in (*released, f"{command} {words}")),
        needs_root=True,
        changes="system packages" + (", and what holds them" if released else ""),
        safety="caution",
    )


def release_command(package: Package) -> str | None:
    """What takes away the lock that holds a package; None where only an editor does."""
    if package.held_by.endswith("/pacman.conf"):
        return None
    if package.held_by.startswith("/etc/zypp/"):
        return f"zypper removelock {shlex.quote(package.lock)}"
    if package.held_by:
        return f"dnf versionlock delete {package.name}"
    return f"apt-mark unhold {package.name}"


def remove_packages(context: Context, *names: str, title: str) -> Remedy:
    """Remove distribution packages."""
    tool = manager(context)
    command = as_root(context, f"{_REMOVE.get(tool or '', 'apt-get remove')} {' '.join(names)}")
    return Remedy(
        title=title,
        commands=(command,),
        needs_root=True,
        changes="system packages",
        safety="caution",
    )


def install_cudnn(context: Context, major: int, cuda: str | None, version: str = "") -> Remedy:
    """Install cuDNN of a major by the distribution's package manager, else by our own command."""
    tool = manager(context)
    cuda_major = (cuda or "").split(".")[0]
    newest = version or f"{major}.99.0"
    rows = query.distro_packages_for(context.matrix, tool or "", newest, cuda_major or None)
    for row in rows:
        if row.runtime:
            return install_packages(
                context, *row.runtime, title=f"install cuDNN {major} from the {row.repo} repository"
            )
    flavour = f" --cuda {cuda_major}" if cuda_major else ""
    return Remedy(
        title=f"install cuDNN {major}",
        commands=(f"cudnn-doctor install --version '{major}.*'{flavour}",),
        changes="a cuDNN of its own in the chosen place",
    )


def install_driver(context: Context, at_least: str = "") -> Remedy:
    """Install or update the NVIDIA driver with this distribution's tools."""
    system = context.machine.system
    tool = manager(context)
    floor = f" {at_least} or newer" if at_least else ""
    commands: dict[str, tuple[str, ...]] = {
        "apt": ("apt-get update", "apt-get install -y cuda-drivers"),
        "dnf": ("dnf install -y cuda-drivers",),
        "zypper": ("zypper --non-interactive install cuda-drivers",),
        "pacman": ("pacman -S --needed nvidia-open",),
    }
    if system.distro_id == "ubuntu":
        commands["apt"] = ("ubuntu-drivers install",)
    if system.wsl:
        return Remedy(title=f"install the NVIDIA driver{floor} for Windows; none inside WSL2")
    if system.container:
        return Remedy(title=f"install the NVIDIA driver{floor} on the host, not in this container")
    return Remedy(
        title=f"install the NVIDIA driver{floor}, then reboot",
        commands=tuple(as_root(context, line) for line in commands.get(tool or "", ())),
        needs_root=True,
        changes="the kernel driver",
        safety="caution",
    )


def reboot(context: Context) -> Remedy:
    """Restart the machine so that the kernel module of the installed driver is loaded."""
    return Remedy(
        title="reboot",
        commands=(as_root(context, "reboot"),),
        needs_root=True,
        changes="ends every running program",
        safety="caution",
    )


def remove_file(context: Context, path: str) -> Remedy:
    """Delete one file and refresh the loader's cache; a link can be brought back."""
    link = next((x.link for x in context.machine.libraries if x.path == path), None)
    return Remedy(
        title=f"delete {path}",
        commands=(
            as_root(context, f"rm -- {shlex.quote(path)}"),
            as_root(context, "ldconfig"),
        ),
        needs_root=True,
        changes="one file",
        safety="caution" if link else "destructive",
        automatic=link is not None,
        action=Links(links={path: ""}) if link else None,
    )
