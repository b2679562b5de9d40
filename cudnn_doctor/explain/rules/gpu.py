"""GPU, compute capability and driver."""

from __future__ import annotations

import re

from cudnn_doctor.explain.case import Case
from cudnn_doctor.explain.facts import numbers

_MAX_CAPABILITY = (
    ((13, 0), (12, 1)),
    ((12, 8), (12, 0)),
    ((11, 8), (9, 0)),
    ((11, 1), (8, 6)),
    ((11, 0), (8, 0)),
    ((10, 0), (7, 5)),
    ((9, 0), (7, 0)),
    ((8, 0), (6, 1)),
)
"""Newest compute capability that a CUDA toolkit has native code for (CUDA release notes)."""
_TORCH_CUDA = (
    ((2, 9), (12, 8)),
    ((2, 8), (12, 8)),
    ((2, 7), (12, 6)),
    ((2, 3), (12, 1)),
    ((2, 1), (12, 1)),
    ((1, 13), (11, 7)),
    ((1, 5), (10, 2)),
    ((0, 4), (9, 0)),
)
"""CUDA of torch's default wheels, for versions that do not tell (the framework's release notes)."""


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def build_capability(case: Case) -> tuple[str, tuple[int, ...]]:
    """Label of torch's build and the newest capability it has code for; empty when unknown."""
    torch = case.facts.framework("torch")
    if torch is None or not torch.version:
        return "", ()
    cuda = numbers(torch.cuda)
    if not cuda:
        version = numbers(torch.version)
        cuda = next((c for least, c in _TORCH_CUDA if version >= least), ())
    newest = next((cc for least, cc in _MAX_CAPABILITY if cuda and cuda[:2] >= least), ())
    if cuda and len(cuda) == 1:
        newest = {10: (7, 5), 11: (9, 0), 12: (12, 0), 13: (12, 1)}.get(cuda[0], ())
    return f"torch {torch.version} (CUDA {_dotted(cuda)})" if cuda else "", newest


def no_kernels(case: Case) -> None:
    """No code for this GPU in the build: too new or too old, by the capability."""
    seen = case.first("no-kernel-image", "capability-not-in-build", "gpu-too-old")
    if seen is None:
        return
    facts = case.facts
    capability = facts.capability
    label, newest = build_capability(case)
    listed = _listed(case)
    lowest, highest = (min(listed), max(listed)) if listed else ((), newest)
    name = facts.gpu_name or "the GPU"
    if capability and lowest and capability < lowest:
        case.vote("gpu-too-old", 0.9, culprit=f"{name} (CC {_dotted(capability)})", line=seen)
        return
    if seen.signature.event == "gpu-too-old":
        told = f"{name} (CC {_dotted(capability)})" if capability else name
        case.vote("gpu-too-old", 0.3, culprit=told, line=seen)
        return
    if capability and capability >= (7, 5):
        what = f"CC {_dotted(capability)} is not in the build's list"
        sm = "".join(map(str, capability))
        culprit = f"{label or 'the build that is loaded'} has no code for sm_{sm}"
        sure = 0.93 if listed or (highest and capability > highest) else 0.82
        case.vote("gpu-too-new-for-build", sure, what, culprit=culprit, line=seen)
        return
    if capability:
        case.vote("gpu-too-old", 0.8, culprit=f"{name} (CC {_dotted(capability)})", line=seen)
        case.vote("gpu-too-new-for-build", 0.2, line=seen)
        return
    case.vote("gpu-too-new-for-build", 0.52, culprit=label or "the framework's build", line=seen)
    case.vote("gpu-too-old", 0.35, line=seen)


def _listed(case: Case) -> list[tuple[int, int]]:
    """The build's architectures where the log lists them."""
    found = case.first("arch-list")
    if found is None:
        return []
    tags = re.findall(r"sm_(\d+)", found.get("list"))
    return [(int(tag[:-1]), int(tag[-1])) for tag in tags if len(tag) > 1]


def arch_mismatch(case: Case) -> None:
    """cuDNN says that it does not support the GPU."""
    statuses = case.statuses()
    seen = statuses.get("ARCH_MISMATCH") or statuses.get("NOT_SUPPORTED_ARCH_MISMATCH")
    if seen is None:
        return
    capability = case.facts.capability
    name = case.facts.gpu_name
    culprit = f"{name} (CC {_dotted(capability)})" if capability else name or "the GPU"
    if capability and capability >= (7, 5):
        case.vote("cudnn-feature-unsupported-on-gpu", 0.7, culprit=culprit, line=seen)
        case.vote("gpu-too-new-for-build", 0.3, culprit=culprit, line=seen)
        return
    case.vote(
        "gpu-too-old-for-cudnn",
        0.85,
        culprit=f"{culprit}: below what this cuDNN supports",
        line=seen,
    )


def feature(case: Case) -> None:
    """No engine for this operation on this GPU."""
    seen = case.first("feature-unsupported")
    if seen is None:
        return
    capability = case.facts.capability
    if capability and capability < (9, 0):
        limit = "8.0" if capability < (8, 0) else "9.0"
        case.vote(
            "cudnn-feature-unsupported-on-gpu",
            0.7 if capability < (8, 0) else 0.3,
            f"CC {_dotted(capability)}",
            culprit=f"this graph on CC {_dotted(capability)} (such engines need {limit})",
            line=seen,
        )


def _no_driver_at_all(case: Case) -> bool:
    """The CUDA runtime calls an absent driver too old as well."""
    seen = case.first("driver-too-old", "no-driver-library")
    if seen is None or not case.facts.whole or case.facts.driver or case.facts.wsl:
        return False
    inside = case.facts.in_container
    found = "container-without-gpu" if inside else "driver-not-installed"
    because = "the container was given no driver" if inside else "no driver is loaded"
    case.vote(found, 0.9, because, culprit="libcuda.so.1", line=seen)
    case.doubt("driver-too-old", 0.2)
    return True


def driver_age(case: Case) -> None:
    """The driver's version or the CUDA that it supports, as culprit."""
    if _no_driver_at_all(case):
        return
    for seen in case.seen("driver-too-old")[:2]:
        number = seen.get("number")
        cuda = f"{int(number) // 1000}.{int(number) % 1000 // 10}" if number else ""
        cuda = cuda or case.facts.machine.driver.cuda or ""
        driver = case.facts.driver
        parts = [f"driver {driver}" if driver else "the driver", f"(CUDA {cuda})" if cuda else ""]
        case.vote("driver-too-old", 0.3, culprit=" ".join(p for p in parts if p), line=seen)
    if case.seen("driver-too-old") and case.suspects.get("driver-too-old"):
        suspect = case.suspects["driver-too-old"]
        driver = case.facts.driver
        if driver and driver not in suspect.culprit:
            suspect.culprit = f"driver {driver}"


def mismatch(case: Case) -> None:
    """Kernel module and libraries of different versions: name both."""
    seen = case.first("driver-mismatch", "system-driver-mismatch")
    if seen is None:
        return
    driver = case.facts.machine.driver
    kernel = driver.kernel_version or seen.get("kernel")
    library = driver.library_version or seen.get("library")
    for upgrade in case.seen("driver-upgraded"):
        kernel, library = kernel or upgrade.get("old"), library or upgrade.get("new")
    for told in case.seen("driver-versions"):
        kernel = kernel or told.get("kernel")
        library = library or told.get("library") or told.get("library2")
    culprit = "kernel module and user-space libraries of different versions"
    if kernel and library:
        culprit = f"kernel module {kernel} against user-space libraries {library}"
    if kernel or library or seen.signature.event == "driver-mismatch":
        case.vote("driver-user-kernel-mismatch", 0.6, culprit=culprit, line=seen)


def forward_compat(case: Case) -> None:
    """The compat libcuda of an image on a GPU that may not use it."""
    seen = case.first("forward-compat")
    if seen is None:
        return
    image = re.search(r"cuda:(\d+\.\d+)", case.facts.prose)
    folder = f"/usr/local/cuda-{image[1]}/compat" if image else "/usr/local/cuda/compat"
    gpu = case.facts.gpu_name or "this GPU"
    case.vote(
        "compat-libcuda-on-geforce",
        0.5,
        culprit=f"{folder}/libcuda.so.1 loaded on {gpu}",
        line=seen,
    )


def ptx(case: Case) -> None:
    seen = case.first("ptx-too-new")
    if seen is not None:
        driver = case.facts.driver
        cuda = case.facts.machine.driver.cuda
        label = f"driver {driver}" + (f" ({cuda})" if cuda else "") if driver else "the driver"
        case.vote("ptx-newer-than-driver", 0.5, culprit=f"{label}: older than the PTX", line=seen)


def ordinal(case: Case) -> None:
    """A device number that this process does not see."""
    seen = case.first("invalid-ordinal")
    if seen is None:
        return
    gpus = case.facts.machine.gpus or ()
    if any(gpu.mig_enabled for gpu in gpus) or case.seen("mig") or case.facts.says(r"\bMIG\b"):
        case.vote(
            "mig-one-instance",
            0.85,
            "MIG is on: a process sees one instance",
            culprit="CUDA_VISIBLE_DEVICES: the MIG UUID is lost, or several ranks are started",
            line=seen,
        )
        case.doubt("gpu-hidden", 0.5)


def stubs(case: Case) -> None:
    """The link-time stub of libcuda on the search path."""
    folders = [f for f in case.facts.ld_path or () if f.endswith("/stubs")]
    seen = case.first("stub-path", "stub")
    if seen is None:
        return
    where = folders[0] if folders else (seen.get("path").rpartition("/")[0] or "a stubs folder")
    case.vote(
        "libcuda-stub-shadow",
        0.7,
        f"LD_LIBRARY_PATH has {folders[0]}" if folders else "",
        culprit=where,
        line=seen,
    )
    case.doubt("uvm-module-wedged", 0.15)


def unknown_error(case: Case) -> None:
    seen = case.first("cuda-unknown")
    if seen is None:
        return
    if case.facts.says(r"suspend|resume|sleep|hibernat|standby"):
        case.vote(
            "uvm-module-wedged",
            0.8,
            "after suspend and resume",
            culprit="nvidia_uvm (the machine was suspended)",
            line=seen,
        )
    else:
        case.vote("uvm-module-wedged", 0.2, culprit="nvidia_uvm", line=seen)
    if case.facts.in_container and not case.facts.says("suspend|resume"):
        case.vote("device-nodes-missing", 0.35, culprit="/dev/nvidia-uvm", line=seen)


def fabric(case: Case) -> None:
    seen = case.first("fabric")
    if seen is not None:
        state = case.facts.machine.driver.fabric_manager
        case.vote(
            "fabricmanager-missing",
            0.5,
            f"fabric manager: {state}" if state else "",
            culprit="the nvidia-fabricmanager service",
            line=seen,
        )


def cpu_build(case: Case) -> None:
    """A build without CUDA: name it."""
    seen = case.first("cpu-build")
    if seen is None:
        return
    named = [f for f in case.facts.machine.frameworks if f.cuda == "cpu"]
    label = f"{named[0].name} {named[0].version}" if named else ""
    if not label and seen.get("version"):
        torch = case.facts.framework("torch")
        label = f"{torch.name if torch else 'torch'} {seen.get('version')}"
    case.vote("cpu-only-wheel", 0.5, culprit=label or "the installed build has no CUDA", line=seen)


def no_device(case: Case) -> None:
    """No GPU is seen: the facts tell which of several reasons."""
    seen = case.first("no-device", "no-driver")
    if seen is None:
        return
    facts = case.facts
    visible = facts.machine.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1", "none", "NoDevFiles"):
        case.vote(
            "gpu-hidden",
            0.93,
            f"CUDA_VISIBLE_DEVICES={visible!r}",
            culprit=f"CUDA_VISIBLE_DEVICES={visible}",
            line=seen,
        )
    elif facts.in_container:
        case.vote(
            "container-without-gpu",
            0.7,
            "in a container",
            culprit="the container was started without the GPU",
            line=seen,
        )
    elif facts.whole and facts.machine.pci == ():
        case.vote("no-nvidia-gpu", 0.9, "no NVIDIA device on the bus", line=seen)
    elif facts.whole and not facts.driver:
        case.vote("driver-not-installed", 0.85, "no driver is loaded", line=seen)


GPU_RULES = (
    no_kernels,
    arch_mismatch,
    feature,
    driver_age,
    mismatch,
    forward_compat,
    ptx,
    ordinal,
    stubs,
    unknown_error,
    fabric,
    cpu_build,
    no_device,
)
