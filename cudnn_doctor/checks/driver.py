"""Rules about the presence of a GPU and its driver, and the driver's version."""

from __future__ import annotations

from collections.abc import Iterator

from cudnn_doctor.checks import remedies
from cudnn_doctor.checks.context import Context, numbers
from cudnn_doctor.checks.model import Evidence, Finding, Remedy
from cudnn_doctor.checks.registry import Skip, rule
from cudnn_doctor.machine.model import PciDevice
from cudnn_doctor.matrix import query

_DISPLAY = ("0x03", "03")
"""PCI class of display controllers; NVSwitch bridges have class 0x0680."""


SPOKEN_FOR = (
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
    "NVML_ERROR_NO_PERMISSION",
    "NVML_ERROR_GPU_IS_LOST",
)
"""Answers that only a loaded driver gives: a GPU is there, whatever the bus shows."""


def gpus_on_bus(context: Context) -> list[PciDevice] | None:
    """NVIDIA display controllers seen on the PCI bus; None where nobody could look."""
    if context.machine.pci is None:
        return None
    return [d for d in context.machine.pci if not d.class_code or d.class_code.startswith(_DISPLAY)]


def nvml_works(context: Context) -> bool:
    """Whether the driver answered."""
    return bool(context.machine.gpus)


@rule("no-nvidia-gpu", "gpu", gpu=True)
def no_nvidia_gpu(context: Context) -> Iterator[Finding]:
    """No NVIDIA GPU on the bus."""
    machine = context.machine
    if machine.gpus:
        return
    if machine.system.wsl or machine.driver.jetpack:
        raise Skip("this kind of machine shows no GPU on the PCI bus")
    on_bus = gpus_on_bus(context)
    no_driver = machine.driver.nvml_error == "NVML_ERROR_LIBRARY_NOT_FOUND" and not machine.partial
    if machine.gpus is None and on_bus is None and not no_driver:
        raise Skip("whether there is a GPU is not known")
    if on_bus or machine.driver.kernel_version or machine.driver.nvml_error in SPOKEN_FOR:
        return
    inside = f" of this {machine.system.container} container" if machine.system.container else ""
    unread = on_bus is None
    looked = "the PCI bus cannot be read" if unread else "no display controller of vendor 10de"
    yield Finding(
        id="no-nvidia-gpu",
        severity="error",
        title="no NVIDIA GPU to be seen" if unread else f"no NVIDIA GPU on the PCI bus{inside}",
        culprit="hardware",
        seen=(
            Evidence(what=looked, where="/sys/bus/pci/devices"),
            Evidence(what=machine.driver.nvml_error or "NVML lists no GPU", how="NVML"),
        ),
        why="cuDNN computes on NVIDIA GPUs only.",
        remedies=(
            Remedy(
                title="if none is meant to be here (image build, login node), judge the rest",
                commands=("cudnn-doctor check --no-gpu",),
            ),
            Remedy(title="on a virtual machine, pass a GPU through or choose a GPU instance"),
        ),
    )


@rule("driver-not-installed", "gpu", gpu=True)
def driver_not_installed(context: Context) -> Iterator[Finding]:
    """A GPU is there, no NVIDIA driver holds it."""
    on_bus = gpus_on_bus(context)
    if on_bus is None:
        raise Skip("the PCI bus could not be read")
    driver = context.machine.driver
    if not on_bus or nvml_works(context) or driver.kernel_version or context.machine.system.wsl:
        return
    held = sorted({d.driver for d in on_bus if d.driver and d.driver != "nvidia"})
    foreign = next((name for name in held if name == "nouveau"), held[0] if held else "")
    if foreign.startswith("vfio"):
        said = f"the GPU is bound to {foreign} (passed through to a virtual machine)"
    elif foreign:
        said = f"the GPU is held by {foreign}, not by the NVIDIA driver"
    else:
        said = "there is an NVIDIA GPU but no NVIDIA driver is loaded"
    yield Finding(
        id="driver-not-installed",
        severity="error",
        title=said,
        culprit=foreign or "nvidia.ko",
        seen=tuple(
            Evidence(
                what=f"{d.device_id or 'NVIDIA GPU'} bound to {d.driver or 'no driver'}",
                where=d.address,
                how="sysfs",
            )
            for d in on_bus
        ),
        why="without the NVIDIA kernel driver no program can use the GPU.",
        remedies=_load_or_install(context, foreign),
        avoid=("a CUDA toolkit or cuDNN: neither brings the driver",),
    )


def _load_or_install(context: Context, foreign: str) -> tuple[Remedy, ...]:
    """Load the installed module where there is one, else install the driver."""
    if context.machine.driver.module_on_disk and not foreign:
        command = remedies.as_root(context, "modprobe nvidia")
        return (
            Remedy(title="load the installed module", commands=(command,), needs_root=True),
            remedies.reboot(context),
        )
    return (remedies.install_driver(context),)


@rule("driver-user-kernel-mismatch", "gpu", gpu=True)
def user_kernel_mismatch(context: Context) -> Iterator[Finding]:
    """The loaded kernel module and the user-space libraries are of different versions."""
    driver = context.machine.driver
    kernel, library = driver.kernel_version, driver.library_version
    told = driver.nvml_error or ""
    mismatch = bool(kernel and library and kernel != library) or "VERSION_MISMATCH" in told
    if not (kernel and library) and not told:
        raise Skip("the versions of the kernel module and its libraries are not known")
    if not mismatch:
        return
    container = context.machine.system.container
    yield Finding(
        id="driver-user-kernel-mismatch",
        severity="error",
        title=f"NVIDIA kernel module {kernel or '?'} with user libraries {library or '?'}",
        culprit=f"libnvidia-ml {library}" if library else "NVIDIA driver",
        seen=(
            Evidence(what=f"module {kernel}", where="/proc/driver/nvidia/version"),
            Evidence(what=f"libraries {library}", where=driver.nvml_library or "libnvidia-ml.so.1"),
            *((Evidence(what=told, how="NVML"),) if told else ()),
        ),
        why="the driver package was updated while the old module stayed loaded; every new CUDA"
        " program fails until both are of one version. Running ones go on.",
        remedies=(
            Remedy(title="restart the container: the host's driver was updated under it")
            if container
            else remedies.reboot(context),
            Remedy(
                title="or reload the modules with no program using the GPU",
                commands=(
                    remedies.as_root(
                        context,
                        "modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia",
                    ),
                    remedies.as_root(context, "modprobe nvidia"),
                ),
                needs_root=True,
                changes="ends graphical sessions",
                safety="caution",
            ),
        ),
        avoid=("reinstalling CUDA or cuDNN", "reinstalling the driver without a reboot"),
    )


@rule("driver-too-old", "gpu", gpu=True)
def driver_too_old(context: Context) -> Iterator[Finding]:
    """The driver does not support the CUDA that a framework was built for."""
    driver = context.machine.driver
    have = numbers(driver.version)
    if not have:
        raise Skip("the driver's version is not known")
    seen: set[str] = set()
    for label, cuda, subject in _built_for(context):
        floor = driver_floor(context, cuda) or _by_cuda(context, cuda)
        if not floor or have >= numbers(floor) or label in seen or _compat_in_use(context):
            continue
        seen.add(label)
        yield Finding(
            id="driver-too-old",
            severity="error",
            title=f"driver {driver.version} is too old for {label} (CUDA {cuda}: {floor})",
            culprit=f"driver {driver.version}",
            subject=subject,
            seen=(
                Evidence(what=f"driver {driver.version}, CUDA {driver.cuda or '?'}", how="NVML"),
                Evidence(what=f"CUDA {cuda.split('.')[0]}.x needs {floor}", how="matrix"),
            ),
            why="a program built for a newer CUDA major cannot start on this driver; minor-version"
            " compatibility reaches back only to the floor of its major.",
            remedies=(
                remedies.install_driver(context, floor),
                Remedy(
                    title=f"or take a build of {label} for CUDA {driver.cuda or 'of the driver'}"
                ),
            ),
            avoid=("a newer CUDA toolkit: it does not change the driver",),
        )


def _built_for(context: Context) -> Iterator[tuple[str, str, str]]:
    """Label, CUDA version and place of everything that needs a driver."""
    for framework in context.machine.frameworks:
        need = context.need(framework)
        cuda = framework.cuda or (need.cuda_built if need else None)
        if cuda and cuda != "cpu":
            label = f"{framework.name} {framework.version}".rstrip()
            yield label, cuda, framework.environment
    if not context.machine.frameworks:
        for toolkit in context.machine.toolkits or ():
            if toolkit.version and (toolkit.active or len(context.machine.toolkits or ()) == 1):
                yield f"CUDA toolkit {toolkit.version}", toolkit.version, toolkit.path


def driver_floor(context: Context, cuda: str) -> str | None:
    """Lowest driver for a CUDA version: of exactly that minor where known, else of its major."""
    row = query.driver_floor(context.matrix, cuda)
    return row.driver if row else query.toolkit_driver(context.matrix, cuda)


def _by_cuda(context: Context, cuda: str) -> str | None:
    """Before CUDA 11 there was no minor-version compatibility: the driver's CUDA is the limit."""
    told = numbers(context.machine.driver.cuda)
    branches = [b for b in context.matrix.driver_branches if b.cuda]
    fitting = [b.branch for b in branches if numbers(b.cuda) >= numbers(cuda)]
    if numbers(cuda) >= (11,) or not told or told >= numbers(cuda) or not fitting:
        return None
    return min(fitting, key=numbers)


def _compat_in_use(context: Context) -> bool:
    """Whether forward-compatibility libraries of a newer driver are on the loader's path."""
    return any("/compat" in folder for folder in context.search_path) or any(
        "/compat/" in entry.path and entry.soname.startswith("libcuda.so")
        for entry in context.machine.loader.cache or ()
    )


@rule("uvm-module-wedged", "gpu", gpu=True)
def uvm_module_missing(context: Context) -> Iterator[Finding]:
    """The GPU answers but nvidia_uvm is not loaded: CUDA cannot start."""
    driver = context.machine.driver
    if driver.uvm_loaded is None:
        raise Skip("whether nvidia_uvm is loaded is not known")
    if driver.uvm_loaded or not nvml_works(context) or context.machine.system.wsl:
        return
    reload = ("modprobe -r nvidia_uvm", "modprobe nvidia_uvm")
    yield Finding(
        id="uvm-module-wedged",
        severity="warning",
        title="the kernel module nvidia_uvm is not loaded",
        culprit="nvidia_uvm",
        seen=(Evidence(what="no nvidia_uvm", where="/proc/modules"),),
        why="CUDA needs it: without it, or when it is wedged after suspend, cuInit fails with"
        " 'unknown error' (999) while nvidia-smi works.",
        remedies=(
            Remedy(
                title="load it again",
                commands=tuple(remedies.as_root(context, line) for line in reload),
                needs_root=True,
            ),
        ),
    )


@rule("fabricmanager-missing", "gpu", gpu=True)
def fabricmanager_missing(context: Context) -> Iterator[Finding]:
    """An NVSwitch machine without a running Fabric Manager of the driver's version."""
    driver = context.machine.driver
    state = driver.fabric_manager
    waiting = [g for g in context.machine.gpus or () if g.fabric_state == "not-started"]
    if state is None and not waiting:
        raise Skip("no NVSwitch is known")
    version = driver.fabric_manager_version
    wrong = bool(version and driver.version and version != driver.version)
    if state == "running" and not wrong and not waiting:
        return
    branch = (driver.version or "").split(".")[0]
    said = f"is {version}, the driver {driver.version}" if wrong else state or "not started"
    yield Finding(
        id="fabricmanager-missing",
        severity="error",
        title=f"NVSwitch machine: Fabric Manager {said.replace('-', ' ')}",
        culprit="nvidia-fabricmanager",
        seen=(
            Evidence(what=f"Fabric Manager: {state or 'unknown'} {version or ''}".rstrip()),
            *(Evidence(what=f"GPU {g.index}: fabric {g.fabric_state}") for g in waiting[:2]),
        ),
        why="until it has set the switches up, cuInit fails with 'system not yet initialized' (802)"
        " though nvidia-smi lists every GPU.",
        remedies=(
            remedies.install_packages(
                context, f"nvidia-fabricmanager-{branch}", title="install the driver's own release"
            ),
            Remedy(
                title="start it",
                commands=(
                    remedies.as_root(context, "systemctl enable --now nvidia-fabricmanager"),
                ),
                needs_root=True,
            ),
        ),
    )
