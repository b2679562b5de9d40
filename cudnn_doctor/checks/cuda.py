"""Rules about the CUDA libraries beside cuDNN: cuBLAS, NVRTC and the rest, and their majors."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cudnn_doctor.checks import remedies
from cudnn_doctor.checks.context import BY_PATH, Context, distribution, file_of, folder_of, numbers
from cudnn_doctor.checks.model import Evidence, Finding, Remedy, Severity
from cudnn_doctor.checks.registry import Skip, rule
from cudnn_doctor.checks.wheels import requirements
from cudnn_doctor.machine.consumers import PLAIN
from cudnn_doctor.machine.loads import Load, LoadPlan

_WHEEL_OF = {
    "libcublas": "nvidia-cublas",
    "libcublasLt": "nvidia-cublas",
    "libnvrtc": "nvidia-cuda-nvrtc",
    "libnvJitLink": "nvidia-nvjitlink",
    "libcudart": "nvidia-cuda-runtime",
    "libcurand": "nvidia-curand",
    "libcufft": "nvidia-cufft",
    "libcusolver": "nvidia-cusolver",
    "libcusparse": "nvidia-cusparse",
}
_DRIVERS_OWN = ("libcuda", "libz")


def _stem(soname: str) -> str:
    return soname.partition(".so")[0]


def _major(soname: str) -> str:
    return soname.partition(".so.")[2].split(".")[0]


def plans(context: Context) -> list[LoadPlan]:
    """Plans whose companions are known. Raises Skip where there is none."""
    found = [p for p in context.plans if p.companions and p.shim and p.shim.path]
    if not found:
        raise Skip("which CUDA libraries cuDNN would get is not known")
    return found


def wheel_of(soname: str, cuda: str) -> str:
    """The distribution that holds a CUDA library: the -cuNN names end with CUDA 12."""
    name = _WHEEL_OF.get(_stem(soname), "")
    return f"{name}-cu{cuda}" if name and cuda.isdecimal() and int(cuda) < 13 else name


def _cuda_of(context: Context, plan: LoadPlan) -> str:
    copy = context.copy_at(plan.folder)
    return ((copy.cuda if copy else None) or plan.consumer.cuda or "12").split(".")[0]


@rule("other-cuda-lib-missing", "toolkit", also=("libnvrtc-missing", "cudnn-cuda-major-mismatch"))
def companion_missing(context: Context) -> Iterator[Finding]:
    """A CUDA library that the loaded cuDNN needs is found nowhere."""
    reported: set[tuple[str, str]] = set()
    for plan in plans(context):
        for load in plan.companions:
            if load.path or load.via == "unknown" or _stem(load.name) in _DRIVERS_OWN:
                continue
            if _own_code_maps(context, plan, load.name):
                continue
            key = (load.name, plan.consumer.environment)
            if key in reported or (_stem(load.name) == "libcublas" and _lt_missing(plan)):
                continue
            reported.add(key)
            yield _missing(context, plan, load)


def _own_code_maps(context: Context, plan: LoadPlan, name: str) -> bool:
    """Whether the environment holds that library: frameworks map it before cuDNN asks for it."""
    prefix = plan.consumer.environment
    return bool(prefix) and any(
        library.path.startswith(f"{prefix}/") and library.status == "ok"
        for library in context.by_name.get(name, ())
    )


def _lt_missing(plan: LoadPlan) -> bool:
    """libcublas needs libcublasLt: where both are missing, one finding is enough."""
    return any(_stem(x.name) == "libcublasLt" and not x.path for x in plan.companions)


def _missing(context: Context, plan: LoadPlan, load: Load) -> Finding:
    cuda = _major(load.name) or _cuda_of(context, plan)
    environment = context.environment(plan.consumer.environment)
    nvrtc = _stem(load.name) == "libnvrtc"
    others = _other_majors(context, load.name)
    id = "libnvrtc-missing" if nvrtc else "other-cuda-lib-missing"
    why = "cuDNN opens it at run time; operations that need it fail."
    if nvrtc:
        why = "cuDNN compiles some kernels at run time with it; those operations fail or are slow."
    elif _stem(load.name) in _SELDOM_USED:
        why = "kernels linked at run time would need it; common operations do not."
    elif others:
        id = "cudnn-cuda-major-mismatch"
        why = f"this cuDNN is built for CUDA {cuda}; the CUDA libraries here are of another major."
    wheel = wheel_of(load.name, cuda)
    who = "a plain program" if plan.consumer.name == PLAIN else plan.consumer.name
    return Finding(
        id=id,
        severity=_severity(context, plan, load.name, wheel),
        title=f"{load.name}, which cuDNN needs for {who}, is not found",
        culprit=load.name,
        subject=plan.consumer.environment or plan.folder or "",
        seen=(
            Evidence(
                what=f"{load.name}: not found"
                + (f", tried {', '.join(load.tried[:4])}" if load.tried else ""),
                how=load.because or "loader simulation",
            ),
            *(Evidence(what="of another major", where=path) for path in others[:3]),
        ),
        why=why,
        remedies=(
            remedies.pip_install(environment, wheel, title=f"install {wheel}"),
            Remedy(
                title="or take the cuDNN built for the CUDA that is there",
                commands=("cudnn-doctor resolve",),
            ),
        )
        if wheel
        else (),
        avoid=("a link from one major's name to the other's file",),
    )


_SELDOM_USED = ("libnvJitLink",)
"""Opened by tensor_ir engines; with it out of reach cuDNN 9.28.1 passed `verify --full` on an H200
(benchmarks/results/verify_h200_2026-11-30_more.md)."""
_PRECOMPILED_DO = ("ct2-bundled-shim",)
"""Ways of loading by frameworks that ask cuDNN for plain convolutions only and that are installed,
by their own documentation, without NVRTC."""


def _severity(context: Context, plan: LoadPlan, name: str, wheel: str) -> Severity:
    """A note where no known program uses that copy; NVRTC counts where something asks for it."""
    nvrtc = _stem(name) == "libnvrtc"
    seldom = _stem(name) in _SELDOM_USED or (nvrtc and plan.consumer.scheme in _PRECOMPILED_DO)
    if plan.consumer.name == PLAIN or seldom:
        return "info"
    return "warning" if nvrtc and not _asks_for(context, plan, wheel) else "error"


def _asks_for(context: Context, plan: LoadPlan, wheel: str) -> bool:
    """Whether a framework in the environment requires that wheel, or compiles at run time."""
    environment = context.environment(plan.consumer.environment)
    if environment is None:
        return True
    asked = any(
        name == wheel for dist in environment.distributions for name, _ in requirements(dist)
    )
    return asked or (plan.consumer.name != BY_PATH and plan.certain)


def _other_majors(context: Context, soname: str) -> list[str]:
    """Libraries of the same name and another major that are there."""
    stem, major = _stem(soname), _major(soname)
    paths = [lib.path for lib in context.machine.libraries if lib.status in ("ok", "unknown")]
    paths += [entry.path for entry in context.machine.loader.cache or ()]
    found = [
        p for p in paths if file_of(p).startswith(f"{stem}.so.") and _major(file_of(p)) != major
    ]
    return sorted(dict.fromkeys(found))


@rule("cublas-shadowed", "toolkit")
def cublas_shadowed(context: Context) -> Iterator[Finding]:
    """cuBLAS and cuBLASLt of different releases in one process."""
    for plan in plans(context):
        pair = {_stem(load.name): load for load in plan.companions if load.path}
        first, second = pair.get("libcublas"), pair.get("libcublasLt")
        if first is None or second is None:
            continue
        if folder_of(first.path or "") == folder_of(second.path or ""):
            continue
        one, two = numbers(first.version), numbers(second.version)
        if not one or not two or one[:3] == two[:3]:
            continue
        culprit = second if second.via == "ld_library_path" else first
        folder = folder_of(culprit.path or "")
        yield Finding(
            id="cublas-shadowed",
            severity="error",
            title=f"{plan.consumer.name} gets cuBLAS {first.version} with cuBLASLt"
            f" {second.version}",
            culprit=culprit.path or culprit.name,
            subject=plan.consumer.environment,
            seen=tuple(
                Evidence(what=f"{x.name} {x.version}", where=x.path or "", how=x.because)
                for x in (first, second)
            ),
            why="the two belong together: CUBLAS_STATUS_INVALID_VALUE or undefined symbols.",
            remedies=(remedies.without_folders(context, folder),)
            if folder in context.search_path
            else (remedies.with_folder(folder_of(first.path or "")),),
        )


@rule("libnvrtc-shadowed-old", "toolkit")
def nvrtc_shadowed(context: Context) -> Iterator[Finding]:
    """LD_LIBRARY_PATH gives cuDNN an NVRTC older than the environment's own."""
    for plan in plans(context):
        environment = context.environment(plan.consumer.environment)
        for load in plan.companions:
            if _stem(load.name) != "libnvrtc" or load.via != "ld_library_path" or not environment:
                continue
            own = distribution(environment, wheel_of(load.name, _cuda_of(context, plan)))
            have = numbers(load.version)
            if own is None or not have or have[:2] >= numbers(own.version)[:2]:
                continue
            folder = folder_of(load.path or "")
            yield Finding(
                id="libnvrtc-shadowed-old",
                severity="warning",
                title=f"LD_LIBRARY_PATH gives NVRTC {load.version} before {own.version}",
                culprit=load.path or load.name,
                subject=plan.consumer.environment,
                seen=(
                    Evidence(what=f"NVRTC {load.version}", where=load.path or "", how=load.because),
                    Evidence(what=f"{own.name} {own.version}", where=own.location),
                ),
                why="an older NVRTC does not know newer GPUs or options: run-time compiled engines"
                " fail.",
                remedies=(remedies.without_folders(context, folder),),
            )


@rule("libnvrtc-missing", "toolkit")
def nvrtc_hashed(context: Context) -> Iterator[Finding]:
    """A bundled cuDNN 8 opens libnvrtc.so, and only a renamed copy of it is there."""
    hashed = [x for x in context.machine.libraries if re.search(r"/libnvrtc-\w+\.so", x.path)]
    if not hashed:
        return
    plain = [x for x in context.machine.libraries if file_of(x.path) == "libnvrtc.so"]
    cached = any(e.soname.startswith("libnvrtc.so") for e in context.machine.loader.cache or ())
    for copy in context.machine.copies or ():
        beside = [x for x in hashed if folder_of(x.path) == copy.folder]
        if copy.major != 8 or not beside or plain or cached:
            continue
        name = file_of(beside[0].path)
        yield Finding(
            id="libnvrtc-missing",
            severity="error",
            title=f"cuDNN {copy.version or 8} opens libnvrtc.so; only {name} is there",
            culprit=f"{copy.folder}/libnvrtc.so",
            subject=copy.folder,
            seen=(Evidence(what=name, where=copy.folder, how="directory listing"),),
            why="the framework's build renamed NVRTC, and cuDNN 8 looks for the plain name when it"
            " compiles a kernel: 'Could not load library libcudnn_cnn_infer.so.8. Error:"
            " libnvrtc.so'.",
            remedies=(
                Remedy(
                    title="give it the name that it looks for",
                    commands=(f"ln -s {name} {copy.folder}/libnvrtc.so",),
                    changes="one link beside it",
                    safety="caution",
                ),
                Remedy(title="or a release of the framework that mends it"),
            ),
        )


@rule("cudnn-cuda-major-mismatch", "toolkit")
def described_major_mismatch(context: Context) -> Iterator[Finding]:
    """A description: cuDNN of one CUDA flavour beside toolkits of other majors only."""
    if not context.machine.partial:
        raise Skip("judged by what the loader finds")
    toolkits = {numbers(t.version)[0] for t in context.machine.toolkits or () if numbers(t.version)}
    for copy in context.machine.copies or ():
        flavour = numbers(copy.cuda)
        if copy.kind in ("wheel", "bundled", "conda") or not flavour or not toolkits:
            continue
        if flavour[0] in toolkits:
            continue
        have = ", ".join(str(major) for major in sorted(toolkits))
        yield Finding(
            id="cudnn-cuda-major-mismatch",
            severity="error",
            title=f"cuDNN {copy.version or copy.major} for CUDA {copy.cuda} beside CUDA {have}",
            culprit=f"libcublas.so.{flavour[0]}",
            subject=copy.folder,
            seen=(Evidence(what=f"CUDA {have}", where=copy.folder),),
            why=f"it needs cuBLAS of CUDA {flavour[0]}.",
            remedies=(
                remedies.install_cudnn(context, copy.major or 9, str(max(toolkits))),
                Remedy(title=f"or install the CUDA {flavour[0]} libraries beside the others"),
            ),
            avoid=("a link from one major's name to the other's file",),
        )


@rule("cuda-major-mismatch", "frameworks")
def extension_major_mismatch(context: Context) -> Iterator[Finding]:
    """A package that lives on torch was built for another CUDA major than torch."""
    frameworks = context.machine.frameworks
    if not frameworks:
        raise Skip("no framework is known")
    for host in (f for f in frameworks if f.name == "torch"):
        want = numbers(host.cuda) or _toolkit_major(context)
        for guest in frameworks:
            mine = numbers(guest.cuda)
            lives_on = guest.name not in _INDEPENDENT and guest.environment == host.environment
            if not (lives_on and mine and want) or mine[0] == want[0]:
                continue
            environment = context.environment(guest.environment)
            name = guest.distribution or guest.name
            yield Finding(
                id="cuda-major-mismatch",
                severity="error",
                title=f"{guest.name} {guest.version} is built for CUDA {guest.cuda}, torch here"
                f" for CUDA {want[0]}",
                culprit=f"{guest.name} {guest.version}",
                subject=guest.environment,
                seen=(
                    Evidence(what=f"{guest.name}: CUDA {guest.cuda}", where=guest.location),
                    Evidence(what=f"torch {host.version}: CUDA {host.cuda or want[0]}"),
                ),
                why=f"its library wants libcudart.so.{mine[0]} and symbols of a torch for it.",
                remedies=(
                    remedies.pip_install(
                        environment, name, title=f"install a build for CUDA {want[0]}", force=True
                    ),
                ),
                avoid=("a second CUDA toolkit: both would be in one process",),
            )


_INDEPENDENT = ("torch", "tensorflow", "jax", "onnxruntime", "ctranslate2", "cupy", "paddlepaddle")


def _toolkit_major(context: Context) -> tuple[int, ...]:
    """For a described torch without a CUDA tag: the CUDA that is there."""
    versions = [numbers(t.version) for t in context.machine.toolkits or () if t.version]
    return versions[0] if context.machine.partial and len(versions) == 1 else ()
