"""Rules about the device nodes: there, and open to this user."""

from __future__ import annotations

from collections.abc import Iterator

from cudnn_doctor.checks import remedies
from cudnn_doctor.checks.context import Context
from cudnn_doctor.checks.driver import SPOKEN_FOR
from cudnn_doctor.checks.model import Evidence, Finding, Remedy
from cudnn_doctor.checks.registry import Skip, rule
from cudnn_doctor.machine.model import DeviceNode

_NEEDED = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0")


def nodes(context: Context) -> tuple[DeviceNode, ...]:
    """The NVIDIA device nodes. Raises Skip where nobody looked, and on WSL2 and Jetson."""
    if context.machine.device_nodes is None:
        raise Skip("the device nodes are not known")
    if context.machine.system.wsl or context.machine.driver.jetpack:
        raise Skip("this kind of machine has other device nodes")
    return context.machine.device_nodes


def refused(context: Context) -> list[DeviceNode]:
    """Nodes that are there and that this process may not open."""
    return [n for n in nodes(context) if n.exists and (n.readable is False or n.error)]


def _seen(node: DeviceNode) -> Evidence:
    access = node.error or ("not readable" if node.readable is False else "there")
    detail = " ".join(word for word in (node.mode, node.owner, access) if word)
    return Evidence(what=detail, where=node.path, how="open")


@rule("device-nodes-missing", "gpu", gpu=True)
def device_nodes_missing(context: Context) -> Iterator[Finding]:
    """The driver is loaded and its device nodes are not there."""
    known = {node.path: node for node in nodes(context)}
    if not context.machine.driver.kernel_version:
        raise Skip("no NVIDIA driver is loaded")
    if context.machine.system.container and not any(n.exists for n in known.values()):
        return
    missing = [path for path in _NEEDED if path in known and not known[path].exists]
    if "/dev/nvidia0" in missing and any(
        n.exists and n.path[len("/dev/nvidia") :].isdecimal() for n in known.values()
    ):
        missing.remove("/dev/nvidia0")
    if not missing:
        return
    yield Finding(
        id="device-nodes-missing",
        severity="error",
        title=f"{', '.join(missing)}: not there though the driver is loaded",
        culprit=missing[0],
        seen=tuple(Evidence(what="missing", where=path, how="stat") for path in missing),
        why="CUDA opens these nodes; without /dev/nvidia-uvm cuInit fails though nvidia-smi works.",
        remedies=(
            Remedy(
                title="create them",
                commands=(remedies.as_root(context, "nvidia-modprobe -u -c=0"),),
                needs_root=True,
                changes="device nodes, until the next boot",
            ),
        ),
    )


@rule("cgroup-device-revoked", "gpu", gpu=True)
def cgroup_device_revoked(context: Context) -> Iterator[Finding]:
    """In a container the node is there, its mode allows, and opening it is refused."""
    container = context.machine.system.container
    found = [n for n in refused(context) if n.error == "EPERM"]
    if not container or not found:
        return
    yield Finding(
        id="cgroup-device-revoked",
        severity="error",
        title=f"the {container} container may not open {found[0].path} (EPERM)",
        culprit=f"device cgroup of this container: {found[0].path}",
        seen=tuple(_seen(node) for node in found),
        why="the device rule of the container's cgroup was dropped (a systemctl daemon-reload on"
        " the host does that) or never given (no-cgroups in the toolkit's configuration).",
        remedies=(
            Remedy(title="restart the container", commands=("docker restart CONTAINER",)),
            Remedy(
                title="for good: give the devices explicitly, or by CDI",
                commands=(
                    "docker run --device nvidia.com/gpu=all ...",
                    "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
                ),
                needs_root=True,
                changes="on the host",
            ),
        ),
        avoid=("reinstalling the driver: the host's works",),
    )


@rule("selinux-denies-gpu", "gpu", gpu=True)
def selinux_denies(context: Context) -> Iterator[Finding]:
    """SELinux refuses a node whose mode allows."""
    found = [n for n in refused(context) if n.error == "EACCES"]
    if context.machine.system.selinux != "enforcing" or not found:
        return
    open_mode = [n for n in found if n.mode.endswith(("66", "6", "rw-"))]
    if not open_mode:
        return
    yield Finding(
        id="selinux-denies-gpu",
        severity="error",
        title=f"SELinux denies {open_mode[0].path}",
        culprit="SELinux",
        seen=(*(_seen(node) for node in open_mode), Evidence(what="SELinux: enforcing")),
        why="the mode bits allow it, the policy does not.",
        remedies=(
            Remedy(
                title="allow containers the use of devices",
                commands=(remedies.as_root(context, "setsebool -P container_use_devices on"),),
                needs_root=True,
                changes="SELinux policy",
                safety="caution",
            ),
            Remedy(
                title="see what was denied",
                commands=(remedies.as_root(context, "ausearch -m avc -ts recent"),),
            ),
        ),
        avoid=("turning SELinux off",),
    )


@rule("uvm-module-wedged", "gpu", gpu=True, also=("permission-denied", "driver-not-installed"))
def driver_does_not_answer(context: Context) -> Iterator[Finding]:
    """The kernel module is loaded, its nodes can be opened, and NVML gets no answer."""
    driver, there = context.machine.driver, nodes(context)
    told = driver.nvml_error
    spoken_for = told in SPOKEN_FOR
    explained = refused(context) or (not spoken_for and any(not node.exists for node in there))
    loaded = driver.kernel_version or spoken_for
    if not told or not loaded or context.machine.gpus or explained or "VERSION_MISMATCH" in told:
        return
    if context.machine.partial:
        raise Skip("how NVML fails is judged on a machine that was probed")
    id, title = "uvm-module-wedged", f"the NVIDIA driver is loaded and does not answer: {told}"
    cure = Remedy(
        title="look what the kernel says of it (Xid, fallen off the bus), then restart the machine",
        commands=(remedies.as_root(context, "dmesg | grep -i -e nvrm -e xid"), "sudo reboot"),
        needs_root=True,
        safety="caution",
    )
    if told == "NVML_ERROR_NO_PERMISSION":
        id, title = "permission-denied", "NVML may not open the GPU (no permission)"
        cure = Remedy(title="see who may open the nodes", commands=("ls -l /dev/nvidia*",))
    elif told == "NVML_ERROR_LIBRARY_NOT_FOUND":
        id = "driver-not-installed"
        title = f"kernel module {driver.kernel_version} is loaded, libnvidia-ml.so.1 is not found"
        cure = remedies.install_driver(context)
    yield Finding(
        id=id,
        severity="error",
        title=title,
        culprit="NVIDIA driver",
        seen=(
            Evidence(what=f"kernel module {driver.kernel_version or 'loaded'}"),
            Evidence(what=told, how="NVML"),
        ),
        why="a program that asks for the GPU gets the same answer.",
        remedies=(cure,),
        avoid=("reinstalling CUDA or cuDNN",),
    )


@rule("permission-denied", "gpu", gpu=True)
def permission_denied(context: Context) -> Iterator[Finding]:
    """The node's mode keeps this user out."""
    selinux = context.machine.system.selinux == "enforcing"
    found = [
        n
        for n in refused(context)
        if n.error != "EPERM" and not (selinux and n.mode.endswith(("66", "6", "rw-")))
    ]
    if not found:
        return
    group = found[0].owner.partition(":")[2] or "video"
    user = context.machine.system.user or "$USER"
    yield Finding(
        id="permission-denied",
        severity="error",
        title=f"{user} may not open {found[0].path}",
        culprit=found[0].path,
        seen=tuple(_seen(node) for node in found),
        why="CUDA opens the device nodes for reading and writing.",
        remedies=(
            Remedy(
                title=f"join the group {group}, then log in again",
                commands=(remedies.as_root(context, f"usermod -aG {group} {user}"),),
                needs_root=True,
                changes="group membership",
            ),
        ),
        avoid=("running everything as root", "chmod 777 on device nodes: lost at the next boot"),
    )
