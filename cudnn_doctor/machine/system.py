"""The operating system: distribution, kernel, libc, container, user, package managers."""

from __future__ import annotations

import json
import os
import platform
import re
import struct
from typing import Literal

from cudnn_doctor.machine.container import container_kind, has_gpu_nodes
from cudnn_doctor.machine.disks import probe_disks
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.kernel import speaks_for
from cudnn_doctor.machine.model import System

Libc = Literal["glibc", "musl"]
Selinux = Literal["enforcing", "permissive", "disabled"]

_MANAGERS = ("apt-get", "dnf", "yum", "zypper", "pacman", "apk", "microdnf", "tdnf", "nix", "conda")
_GLIBC_NAME = re.compile(r"libc-(\d+\.\d+)\.so")
_GLIBC_BANNER = re.compile(rb"GNU C Library[^\n]*?version (\d+\.\d+)")
_LOADERS = ("/lib64/ld-linux-*.so.*", "/lib/ld-linux-*.so.*", "/lib/*-linux-gnu/ld-linux-*.so.*")
_LIBCS = ("/lib/*-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/lib/libc.so.6", "/usr/lib/libc.so.6")
_ELF_MACHINES = {62: "x86_64", 183: "aarch64", 21: "ppc64le", 3: "i386", 40: "arm", 243: "riscv64"}


def probe_system(host: Host) -> System:
    """Everything about the system; what cannot be told stays None."""
    libc, libc_version = _libc(host)
    kernel = _kernel(host)
    container = container_kind(host)
    distro = _distro(host)
    tmpdir = host.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - what programs fall back to
    return System(
        distro_id=distro.get("id"),
        distro_like=tuple(distro.get("id_like", "").split()),
        distro_version=distro.get("version_id"),
        distro_name=distro.get("pretty_name", ""),
        kernel=kernel,
        arch=os.uname().machine if host.live else _arch_of_files(host),
        libc=libc,
        libc_version=libc_version,
        container=container,
        container_gpu=has_gpu_nodes(host) if container else None,
        wsl=_wsl(host, kernel),
        docker_context=_docker_context(host),
        selinux=_selinux(host),
        user=_user() if host.live else None,
        is_root=os.geteuid() == 0 if host.live else None,
        package_managers=tuple(name for name in _MANAGERS if host.which(name)),
        disks=probe_disks(host, tmpdir),
        tmpdir=tmpdir,
    )


def _distro(host: Host) -> dict[str, str]:
    """os-release's fields; empty when there is none."""
    if host.live:
        try:
            told = platform.freedesktop_os_release()
        except (OSError, ValueError):
            return {}
        return {key.lower(): value for key, value in told.items()}
    import distro

    for path in ("/etc/os-release", "/usr/lib/os-release"):
        if host.text(path) is not None:
            # Its root_dir would follow absolute links out of the root, so the file is given.
            return distro.LinuxDistribution(
                include_lsb=False,
                os_release_file=host.outer(path),
                distro_release_file=os.devnull,
                include_uname=False,
                include_oslevel=False,
            ).os_release_info()
    return {}


def _kernel(host: Host) -> str | None:
    if host.live:
        return os.uname().release
    if not speaks_for(host, "/proc"):
        return None
    return (host.text("/proc/sys/kernel/osrelease", 256) or "").strip() or None


def _libc(host: Host) -> tuple[Libc | None, str | None]:
    """The system's libc, not our interpreter's: judged by the loaders that are installed.

    A glibc beside musl (Alpine's gcompat) still is a musl system.
    """
    musl = host.glob("/lib/ld-musl-*.so.1")
    if musl:
        version = None
        if host.live:
            match = re.search(r"Version (\S+)", host.run([musl[0]]).err)
            version = match[1] if match else None
        return "musl", version
    if host.live:
        told = (
            os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else ""
        )
        if told and told.startswith("glibc "):
            return "glibc", told.split()[1]
    return _glibc_in_files(host)


def _glibc_in_files(host: Host) -> tuple[Libc | None, str | None]:
    for pattern in _LIBCS:
        for path in host.glob(pattern):
            named = _GLIBC_NAME.search(host.real(path) or "")
            banner = _GLIBC_BANNER.search(host.bytes(path) or b"")
            version = named[1] if named else banner[1].decode() if banner else None
            return "glibc", version
    return ("glibc", None) if any(map(host.glob, _LOADERS)) else (None, None)


def _arch_of_files(host: Host) -> str | None:
    """The architecture of the root's own shell, from its ELF header."""
    for path in ("/bin/sh", "/usr/bin/env", "/bin/busybox"):
        head = host.bytes(path, 20) or b""
        if head[:4] == b"\x7fELF" and len(head) == 20:
            order = "<" if head[5] == 1 else ">"
            (machine,) = struct.unpack_from(order + "H", head, 18)
            return _ELF_MACHINES.get(machine)
    return None


def _wsl(host: Host, kernel: str | None) -> bool | None:
    if kernel is None:
        return None
    return "microsoft" in kernel.lower() or "WSL_DISTRO_NAME" in host.environ


def _docker_context(host: Host) -> str | None:
    """The Docker client's current context; ``default`` where a client was set up without one."""
    if host.environ.get("DOCKER_CONTEXT"):
        return host.environ["DOCKER_CONTEXT"]
    folder = host.environ.get("DOCKER_CONFIG") or f"{host.home}/.docker"
    text = host.text(f"{folder}/config.json")
    if text is None:
        return "default" if host.which("docker") else None
    try:
        config = json.loads(text)
    except ValueError as error:
        host.fail("system", f"{folder}/config.json: {error}")
        return None
    context = config.get("currentContext") if isinstance(config, dict) else None
    return context if isinstance(context, str) else "default"


def _selinux(host: Host) -> Selinux | None:
    if not speaks_for(host, "/sys"):
        return None
    told = host.text("/sys/fs/selinux/enforce", 8)
    if told is None:
        return "disabled" if host.is_dir("/sys/fs") else None
    return "enforcing" if told.strip() == "1" else "permissive"


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
