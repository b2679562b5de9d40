"""Rules about containers: whether the GPU was handed in."""

from __future__ import annotations

from collections.abc import Iterator

from cudnn_doctor.checks.context import Context
from cudnn_doctor.checks.model import Evidence, Finding, Remedy
from cudnn_doctor.checks.registry import Skip, rule

_NONE = ("void", "none", "")


@rule("docker-desktop-context", "gpu", gpu=True)
def docker_desktop(context: Context) -> Iterator[Finding]:
    """The docker command talks to Docker Desktop's virtual machine, which has no GPU."""
    current = context.machine.system.docker_context
    if current is None:
        raise Skip("the docker context is not known")
    if not current.startswith("desktop-linux") or context.machine.system.wsl:
        return
    yield Finding(
        id="docker-desktop-context",
        severity="warning",
        title=f"docker uses the context {current}: a virtual machine without the GPU",
        culprit=f"docker context {current}",
        seen=(Evidence(what=current, where="~/.docker/config.json", how="currentContext"),),
        why="Docker Desktop on Linux runs containers in a virtual machine; --gpus cannot reach the"
        " host's driver from there.",
        remedies=(
            Remedy(
                title="use the host's own Docker Engine",
                commands=("docker context use default",),
                changes="which daemon docker talks to",
            ),
        ),
        avoid=("reinstalling the driver or the container toolkit",),
    )


@rule("container-without-gpu", "gpu", gpu=True)
def container_without_gpu(context: Context) -> Iterator[Finding]:
    """The container was started without the GPU."""
    system = context.machine.system
    if not system.container:
        return
    if context.machine.gpus:
        return
    visible = context.machine.environ.get("NVIDIA_VISIBLE_DEVICES")
    there = context.machine.device_nodes
    if there is None and system.container_gpu is None and visible is None:
        raise Skip("whether the container was given a GPU is not known")
    has_nodes = any(node.exists for node in there or ())
    if has_nodes or (system.container_gpu and visible not in _NONE):
        return
    host_driver = context.machine.driver.kernel_version
    asked = bool(context.machine.frameworks or context.machine.copies or host_driver or visible)
    if context.machine.pci == () and not host_driver and not context.machine.partial:
        return
    yield Finding(
        id="container-without-gpu",
        severity="error" if asked or context.machine.partial else "warning",
        title=f"this {system.container} container was started without the GPU",
        culprit="the command or file that starts the container",
        seen=(
            Evidence(what="no /dev/nvidia* inside", where="/dev", how="stat"),
            Evidence(what=f"NVIDIA_VISIBLE_DEVICES={visible}", how="environment")
            if visible is not None
            else Evidence(what="NVIDIA_VISIBLE_DEVICES is not set", how="environment"),
            *(
                (Evidence(what=f"host driver {host_driver}", where="/proc/driver/nvidia/version"),)
                if host_driver
                else ()
            ),
        ),
        why="the container runtime adds device nodes and driver libraries only when asked to.",
        remedies=_start_again(system.container),
        avoid=("installing a driver inside the container",),
    )


def _start_again(container: str) -> tuple[Remedy, ...]:
    if container == "podman":
        return (
            Remedy(
                title="start it with the GPU",
                commands=("podman run --device nvidia.com/gpu=all IMAGE",),
            ),
        )
    if container == "apptainer":
        return (Remedy(title="start it with --nv", commands=("apptainer run --nv IMAGE",)),)
    if container == "lxc":
        return (Remedy(title="hand the GPU in", commands=("lxc config device add NAME gpu gpu",)),)
    if container == "kubernetes":
        return (Remedy(title="ask for it in the pod: resources.limits: nvidia.com/gpu: 1"),)
    return (
        Remedy(title="start it with the GPU", commands=("docker run --gpus all IMAGE",)),
        Remedy(
            title="in a compose file: deploy.resources.reservations.devices with driver nvidia,"
            " count all, capabilities [gpu]"
        ),
    )
