"""Rules about the build of a framework and the GPUs: code for them, by CUDA or by PTX, or none."""

from __future__ import annotations

from collections.abc import Iterator

from cudnn_doctor.checks import remedies
from cudnn_doctor.checks.context import Context, distribution, matches, numbers
from cudnn_doctor.checks.gpu import known_gpus
from cudnn_doctor.checks.model import Evidence, Finding, Remedy, Severity
from cudnn_doctor.checks.registry import Skip, rule
from cudnn_doctor.machine.model import Framework, Gpu
from cudnn_doctor.matrix.model import GpuModel


@rule("gpu-too-old", "gpu", gpu=True)
def too_old(context: Context) -> Iterator[Finding]:
    """The GPU is too old for the CUDA of a framework altogether."""
    for gpu in known_gpus(context):
        model = _model(context, gpu)
        if model is None or not model.max_cuda:
            continue
        for framework in context.machine.frameworks:
            cuda = numbers(framework.cuda)
            if not cuda or cuda <= numbers(model.max_cuda) or cuda[:1] == numbers(model.max_cuda):
                continue
            yield Finding(
                id="gpu-too-old",
                severity="error",
                title=f"{gpu.name} ({model.cc}) is too old for {framework.name} on CUDA"
                f" {framework.cuda}",
                culprit=f"compute capability {model.cc}",
                subject=framework.environment,
                seen=(
                    Evidence(what=f"{gpu.name}: compute capability {model.cc}", how="NVML"),
                    Evidence(what=f"last CUDA for it: {model.max_cuda}", how="compat_matrix.yaml"),
                ),
                why="the compiler of that CUDA cannot make code for this GPU.",
                remedies=(Remedy(title=f"use a build for CUDA {model.max_cuda} or older"),),
            )


def _model(context: Context, gpu: Gpu) -> GpuModel | None:
    return next((m for m in context.matrix.gpus if m.cc == gpu.compute_capability), None)


@rule("gpu-too-new-for-build", "gpu", gpu=True)
def too_new_for_build(context: Context) -> Iterator[Finding]:
    """A framework's build has no kernels for a GPU and no PTX that could be compiled for it."""
    for gpu in known_gpus(context):
        cc = gpu.compute_capability or ""
        for framework in context.machine.frameworks:
            need = context.need(framework)
            carried = need.cc if need else None
            cuda = framework.cuda or (need.cuda_built if need else None)
            if carried:
                lacking = not any(runs_on(code, cc) for code in carried)
                shown = f"built for {', '.join(carried)}"
            else:
                first = _first_cuda(context, cc)
                lacking = bool(
                    first and numbers(cuda) and len(numbers(cuda)) > 1 and numbers(cuda) < first
                )
                shown = f"built with CUDA {cuda}"
            if not lacking:
                continue
            label = f"{framework.name} {framework.version}".rstrip()
            yield Finding(
                id="gpu-too-new-for-build",
                severity="error",
                title=f"{label} has no kernels for {gpu.name} (compute capability {cc})",
                culprit=label,
                subject=framework.environment,
                seen=(
                    Evidence(what=f"{gpu.name}: compute capability {cc}", how="NVML"),
                    Evidence(what=f"{label}: {shown}", how="compat_matrix.yaml"),
                ),
                why="'no kernel image is available' or EXECUTION_FAILED at the first operation.",
                remedies=(_newer_build(context, framework.name, framework.environment, cc),),
                avoid=("a newer system CUDA or cuDNN: the framework uses what it was built with",),
            )


def runs_on(code: str, cc: str) -> bool:
    """Whether code of a compute capability (``8.0``, ``9.0+PTX``, ``9.0a``) runs on a GPU.

    Native code runs on the same major with an equal or higher minor; PTX on anything newer;
    the ``a`` kind only on exactly its own.
    """
    base = code.removesuffix("+PTX")
    specific = base.endswith("a")
    have, gpu = numbers(base.rstrip("af")), numbers(cc)
    if specific:
        return have == gpu
    return (have[:1] == gpu[:1] and have <= gpu) or (code.endswith("+PTX") and have <= gpu)


def _first_cuda(context: Context, cc: str) -> tuple[int, ...] | None:
    """First CUDA that can make code that runs natively on a compute capability."""
    rows = [
        numbers(m.min_cuda)
        for m in context.matrix.gpus
        if m.min_cuda and numbers(m.cc)[:1] == numbers(cc)[:1] and numbers(m.cc) <= numbers(cc)
    ]
    return min(rows, default=None)


def _newer_build(context: Context, name: str, prefix: str, cc: str) -> Remedy:
    first = _first_cuda(context, cc)
    cuda = ".".join(str(part) for part in first) if first else "a newer version"
    environment = context.environment(prefix)
    return Remedy(
        title=f"take a build of {name} for CUDA {cuda} or newer",
        commands=(remedies.pip_command(environment, "install", "--upgrade", name),),
        changes=f"packages in {prefix or 'the environment'}",
        safety="caution",
    )


@rule("ptx-newer-than-driver", "gpu", gpu=True)
def ptx_newer_than_driver(context: Context) -> Iterator[Finding]:
    """Only PTX of a toolkit newer than the driver would run on this GPU."""
    driver_cuda = numbers(context.machine.driver.cuda)
    if len(driver_cuda) < 2:
        raise Skip("the CUDA version of the driver is not known")
    for gpu in known_gpus(context):
        cc = gpu.compute_capability or ""
        for framework in context.machine.frameworks:
            need = context.need(framework)
            built = numbers(framework.cuda or "") if "." in (framework.cuda or "") else ()
            built = built or numbers(need.cuda_built if need else None)
            carried = need.cc if need else None
            if not carried or len(built) < 2 or built[0] != driver_cuda[0] or built <= driver_cuda:
                continue
            native = any(runs_on(code.removesuffix("+PTX"), cc) for code in carried)
            if native or not any(runs_on(code, cc) for code in carried):
                continue
            label = f"{framework.name} {framework.version}"
            shown = ".".join(str(part) for part in built[:2])
            yield Finding(
                id="ptx-newer-than-driver",
                severity="error",
                title=f"{label} has only PTX of CUDA {shown} for {gpu.name}; the driver is"
                f" {context.machine.driver.cuda}",
                culprit=f"driver {context.machine.driver.version or context.machine.driver.cuda}",
                subject=framework.environment,
                seen=(
                    Evidence(what=f"built for {', '.join(carried)}", where=label),
                    Evidence(what=f"driver: CUDA {context.machine.driver.cuda}", how="NVML"),
                ),
                why="minor-version compatibility covers native code only; PTX from a newer toolkit"
                " is refused with 'unsupported toolchain' (222).",
                remedies=(remedies.install_driver(context),),
            )


@rule("cpu-only-wheel", "frameworks", gpu=True)
def cpu_only_wheel(context: Context) -> Iterator[Finding]:
    """A GPU is there and the framework's build has no CUDA."""
    if not context.machine.gpus:
        raise Skip("no GPU is known")
    for framework in context.machine.frameworks:
        if framework.cuda != "cpu":
            continue
        gpu_twin = any(
            f.name == framework.name and f.environment == framework.environment and f.cuda != "cpu"
            for f in context.machine.frameworks
        )
        if gpu_twin or not matches(framework.version.partition("+")[0] or "0", ">=0"):
            continue
        yield _cpu_only(context, framework)


_OFTEN_FOR_CPU = ("onnxruntime",)
"""Packages whose CPU build is what most that depend on them ask for, GPU or no GPU."""


def _cpu_only(context: Context, framework: Framework) -> Finding:
    label = f"{framework.name} {framework.version}"
    overwritten = _overwritten(context, framework)
    severity: Severity = "warning"
    if context.machine.partial or overwritten:
        severity = "error"
    elif framework.name in _OFTEN_FOR_CPU and not _asked_for(context, framework):
        severity = "info"
    seen = [Evidence(what="no CUDA in this build", where=framework.location)]
    why = "the default wheel of this platform, or the index it came from, has no CUDA."
    remedy = _gpu_build(context, framework.name, framework.environment)
    if overwritten:
        both = f"{overwritten} and {framework.distribution} are both installed"
        seen.append(Evidence(what=both, where=framework.environment, how="metadata"))
        why = "both own the same files, and the CPU build was installed last."
        environment = context.environment(framework.environment)
        names = (overwritten, framework.distribution)
        away = remedies.pip_command(environment, "uninstall", "-y", *names)
        back = remedies.pip_command(environment, "install", f"{overwritten}=={framework.version}")
        remedy = Remedy(
            title="take both out and put the GPU build back",
            commands=(away, back),
            changes=f"packages in {framework.environment}",
        )
    return Finding(
        id="cpu-only-wheel",
        severity=severity,
        title=f"{label} is a CPU build; the GPU is not used",
        culprit=label,
        subject=framework.environment,
        seen=tuple(seen),
        why=why,
        remedies=(remedy,),
        avoid=("installing CUDA or cuDNN: a CPU build cannot use them",),
    )


def _overwritten(context: Context, framework: Framework) -> str:
    """The GPU distribution whose files this CPU build replaced."""
    environment = context.environment(framework.environment)
    twin = f"{framework.distribution}-gpu"
    return twin if environment and distribution(environment, twin) else ""


def _asked_for(context: Context, framework: Framework) -> bool:
    """Whether the project's files ask for the GPU build."""
    twin = f"{framework.name}-gpu"
    return any(wish.name == twin for wish in context.machine.project.requirements)


def _gpu_build(context: Context, name: str, prefix: str) -> Remedy:
    environment = context.environment(prefix)
    title, changes = "install the build for this driver's CUDA", f"packages in {prefix or 'it'}"
    if name == "torch":
        python = environment.executable if environment else None
        line = "uv pip install --torch-backend=auto --reinstall-package torch torch"
        command = f"{line} --python {python}" if python else line
        return Remedy(title=title, commands=(command,), changes=changes)
    driver = numbers(context.machine.driver.cuda)
    package = {
        "onnxruntime": "onnxruntime-gpu",
        "tensorflow": "tensorflow[and-cuda]",
        "jax": f"jax[cuda{driver[0] if driver else 12}]",
    }.get(name, name)
    return remedies.pip_install(environment, package, title=title)
