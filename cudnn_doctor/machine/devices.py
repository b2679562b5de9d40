"""The device nodes through which programs reach the GPU, and whether this user may open them."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.kernel import speaks_for
from cudnn_doctor.machine.model import DeviceNode

_ALWAYS = ("/dev/nvidiactl", "/dev/nvidia-uvm")
_TEGRA = re.compile(r"nvhost-(?:gpu|ctrl-gpu|as-gpu)|nvmap")
_MINOR = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)
_CHEAP = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/dxg")
"""Nodes that can be opened without waking a GPU."""


def probe_device_nodes(host: Host) -> tuple[DeviceNode, ...] | None:
    """Nodes that are there or ought to be; None when /dev of that machine cannot be seen.

    On WSL2 that is ``/dev/dxg`` alone, on Tegra the nodes of its own GPU driver are among them.
    """
    if not speaks_for(host, "/dev"):
        return None
    paths = list(dict.fromkeys(_expected(host)))
    if not host.live and not any(host.exists(path) for path in paths):
        return None
    return tuple(_node(host, path) for path in paths)


def _expected(host: Host) -> Iterator[str]:
    names = host.names("/dev")
    if "dxg" in names:
        yield "/dev/dxg"
        return
    yield from _ALWAYS
    for path in host.glob("/proc/driver/nvidia/gpus/*/information"):
        minor = _MINOR.search(host.text(path) or "")
        if minor:
            yield f"/dev/nvidia{minor[1]}"
    for name in names:
        if re.fullmatch(r"nvidia\d+", name) or _TEGRA.fullmatch(name):
            yield f"/dev/{name}"
    for name in host.names("/dev/nvidia-caps"):
        yield f"/dev/nvidia-caps/{name}"


def _node(host: Host, path: str) -> DeviceNode:
    info = host.stat(path)
    if info is None:
        return DeviceNode(path=path)
    outer = host.outer(path)
    # access(2) asks every judge (mode, device cgroup, SELinux) without reaching the driver.
    readable, writable = os.access(outer, os.R_OK), os.access(outer, os.W_OK)
    error = ""
    if stat.S_ISCHR(info.st_mode) and (path in _CHEAP or not (readable and writable)):
        error = _opening_error(outer, os.O_RDONLY if "/nvidia-caps/" in path else os.O_RDWR)
    return DeviceNode(
        path=path,
        exists=True,
        readable=readable,
        writable=writable,
        mode=stat.filemode(info.st_mode),
        owner=f"{_user(info.st_uid)}:{_group(info.st_gid)}",
        error=error,
    )


def _opening_error(path: str, flags: int) -> str:
    try:
        os.close(os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error.errno))
    return ""


def _user(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
