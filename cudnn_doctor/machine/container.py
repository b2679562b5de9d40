"""Whether this is a container, of what kind, and whether it was given a GPU."""

from __future__ import annotations

import re

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.kernel import speaks_for

_CGROUPS = (
    (re.compile(r"kubepods"), "kubernetes"),
    (re.compile(r"/docker[/-]"), "docker"),
    (re.compile(r"libpod"), "podman"),
    (re.compile(r"/lxc[/.]"), "lxc"),
    (re.compile(r"containerd|/actions_job"), "containerd"),
)
_RENAMED = {"oci": "docker", "lxc-libvirt": "lxc"}
_VARIABLES = (
    ("KUBERNETES_SERVICE_HOST", "kubernetes"),
    ("APPTAINER_CONTAINER", "apptainer"),
    ("SINGULARITY_CONTAINER", "apptainer"),
)
_MARKERS = (
    ("/.singularity.d", "apptainer"),
    ("/.dockerenv", "docker"),
    ("/run/.containerenv", "podman"),
)


def container_kind(host: Host) -> str | None:
    """``docker``, ``podman``, ``kubernetes``, ``apptainer``, ``lxc`` ...; None: not in one.

    Signs in the order of their weight: variables set by the runtime, marker files, what systemd
    was told, and the control groups of process 1. An image on the disk is not yet a container.
    """
    if not host.live and not speaks_for(host, "/proc"):
        return None
    signs = [kind for variable, kind in _VARIABLES if variable in host.environ]
    signs += [kind for path, kind in _MARKERS if host.exists(path)]
    told = host.environ.get("container") or host.text("/run/systemd/container", 64) or ""
    if told.strip() not in ("", "wsl"):
        signs.append(_RENAMED.get(told.strip(), told.strip()))
    groups = host.text("/proc/1/cgroup") or ""
    signs += [kind for pattern, kind in _CGROUPS if pattern.search(groups)]
    return signs[0] if signs else None


def has_gpu_nodes(host: Host) -> bool:
    """Whether a GPU was given to this container: some node of one is there.

    NVIDIA_VISIBLE_DEVICES proves nothing: images set it for a runtime that may not be in use.
    """
    return bool(host.glob("/dev/nvidia[0-9]*")) or any(
        host.exists(path) for path in ("/dev/dxg", "/dev/nvhost-gpu", "/dev/nvmap")
    )
