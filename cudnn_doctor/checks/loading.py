"""Rules about frameworks that find no cuDNN, or one of the wrong major."""

from __future__ import annotations

from collections.abc import Iterator

from cudnn_doctor.checks import remedies
from cudnn_doctor.checks.context import Context, cudnn_wheels, distribution, folder_of
from cudnn_doctor.checks.got import Got, accepts, all_got, others_got
from cudnn_doctor.checks.model import Evidence, Finding, Remedy
from cudnn_doctor.checks.registry import Skip, rule
from cudnn_doctor.checks.wheels import requirements
from cudnn_doctor.machine.model import CudnnCopy


def judged(context: Context) -> tuple[Got, ...]:
    """What every framework gets. Raises Skip where no framework is known."""
    if not context.machine.frameworks:
        raise Skip("no framework that uses cuDNN is known")
    return all_got(context)


@rule(
    "cudnn-not-installed",
    "frameworks",
    also=("cudnn-not-on-loader-path", "cudnn-major-mismatch", "framework-deps-not-installed"),
)
def finds_no_cudnn(context: Context) -> Iterator[Finding]:
    """A framework needs cuDNN and its loader finds none: why."""
    for got in judged(context):
        if got.found or not got.known or _needless(got):
            continue
        copies = [c for c in context.machine.copies or () if not c.private and c.lacks != ("*",)]
        right = [c for c in copies if got.major is None or c.major in (None, got.major)]
        usable = [copy for copy in right if accepts(got, copy.version) is not False]
        missing = _missing_requirement(context, got)
        if missing:
            yield _deps(context, got, missing)
        elif usable:
            yield _unseen(context, got, usable)
        elif copies and not right:
            yield _other_major(context, got, copies)
        else:
            yield _nowhere(context, got, right)


def _needless(got: Got) -> bool:
    """Builds for which cuDNN is optional: absent is no fault."""
    return bool(got.plan and got.plan.consumer.scheme == "ort-lazy-dlopen")


def _evidence(got: Got) -> tuple[Evidence, ...]:
    shim = got.plan.shim if got.plan else None
    if shim is None:
        return (Evidence(what=f"{got.label} finds no cuDNN", how="described"),)
    tried = f"tried: {', '.join(shim.tried)}" if shim.tried else "nowhere on its loader's path"
    return (Evidence(what=f"{shim.name}: not found, {tried}", how=shim.because or "loader"),)


def _missing_requirement(context: Context, got: Got) -> str:
    """The cuDNN wheel that the framework's metadata requires and that is not installed."""
    environment = context.environment(got.framework.environment)
    if environment is None:
        return ""
    name = got.framework.distribution or got.framework.name
    dist = distribution(environment, name)
    for required, specifier in requirements(dist, extras=_for_gpus(got)) if dist else ():
        if required.startswith("nvidia-cudnn") and distribution(environment, required) is None:
            return f"{required}{specifier}"
    listed = dist is not None and dist.requires
    need = got.need
    if listed or cudnn_wheels(environment) or need is None or need.cuda_major is None:
        return ""
    pinned = need.cudnn_install_kind == "pinned" and need.cudnn_install
    return f"nvidia-cudnn-cu{need.cuda_major}{need.cudnn_install}" if pinned else ""


def _for_gpus(got: Got) -> bool:
    """Whether the distribution is for GPUs alone: what it asks for under an extra is no option."""
    return "cuda" in got.framework.distribution


def _deps(context: Context, got: Got, missing: str) -> Finding:
    environment = context.environment(got.framework.environment)
    name = got.framework.distribution or got.framework.name
    whole = f"{name}=={got.framework.version}"
    return Finding(
        id="framework-deps-not-installed",
        severity="error",
        title=f"{got.label} is installed without {missing}",
        culprit=missing,
        subject=got.subject,
        seen=(
            Evidence(what=f"{name} requires {missing}", how="metadata"),
            Evidence(what="that distribution is not installed", where=got.subject),
            *_evidence(got),
        ),
        why="its NVIDIA libraries come as separate wheels; a lock file without them, --no-deps or"
        " a sync left them out.",
        remedies=(
            remedies.pip_install(
                environment, missing, title=f"install {missing.partition('=')[0]}"
            ),
            remedies.pip_install(environment, whole, title="or all that the framework requires"),
        ),
        avoid=("a system-wide cuDNN: the framework looks into its own environment",),
    )


def _unseen(context: Context, got: Got, copies: list[CudnnCopy]) -> Finding:
    best = max(copies, key=lambda c: (c.environment == got.framework.environment, c.version or ""))
    paths = ", ".join(c.folder or c.kind for c in copies)
    return Finding(
        id="cudnn-not-on-loader-path",
        severity="error" if _is_meant(context, got) else "info",
        title=f"{got.label} does not see the cuDNN in {best.folder or best.kind}",
        culprit=best.folder or best.kind,
        subject=got.subject,
        seen=(
            Evidence(what=f"cuDNN {best.version or best.major or ''} is in {paths}"),
            *_evidence(got),
            Evidence(
                what=f"LD_LIBRARY_PATH={context.machine.environ.get('LD_LIBRARY_PATH', '')}",
                how="environment",
            ),
        ),
        why="it opens cuDNN by name and has no run path into that folder: the library is"
        " installed, the loader does not look there.",
        remedies=(remedies.with_folder(best.folder, *_companions(context, best)),)
        if best.folder
        else (),
        avoid=("installing one more copy of cuDNN",),
    )


def _companions(context: Context, copy: CudnnCopy) -> tuple[str, ...]:
    """Folders of the other NVIDIA wheels beside a wheel's copy: it is of no use without them."""
    wheels, _, found = copy.folder.rpartition("/cudnn/lib")
    if found or not wheels.endswith("/nvidia"):
        return ()
    folders = {folder_of(x.path) for x in context.machine.libraries if x.path.startswith(wheels)}
    return tuple(sorted(folders - {copy.folder}))


def _other_major(context: Context, got: Got, copies: list[CudnnCopy]) -> Finding:
    have = sorted({c.major for c in copies if c.major})
    majors = " and ".join(str(major) for major in have)
    return Finding(
        id="cudnn-major-mismatch",
        severity="error" if _is_meant(context, got) else "info",
        title=f"{got.label} needs cuDNN {got.major}, this machine has only {majors}",
        culprit=f"{got.label} (needs cuDNN {got.major})",
        subject=got.subject,
        seen=(
            *(
                Evidence(what=f"cuDNN {c.version or c.major}", where=c.folder or c.kind)
                for c in copies[:4]
            ),
            *_evidence(got),
        ),
        why="the SONAME holds the major: libcudnn.so.8 and libcudnn.so.9 are different libraries"
        " with different functions.",
        remedies=_provide(context, got),
        avoid=("a link from one major's name to the other's file",),
    )


_SERVE_CPU_TOO = ("tensorflow", "ctranslate2", "faster-whisper", "whisperx")
"""Frameworks whose one wheel is for machines with and without a GPU alike."""


def _is_meant(context: Context, got: Got) -> bool:
    """Whether the framework is there to use a GPU: its build says so, or a GPU is there."""
    meant_for_gpu = got.framework.name not in _SERVE_CPU_TOO
    return meant_for_gpu or bool(context.machine.gpus) or context.machine.partial


def _nowhere(context: Context, got: Got, refused: list[CudnnCopy]) -> Finding:
    want = f"cuDNN {got.major}" if got.major else "cuDNN"
    lacking = "none that it accepts is here" if refused else "there is none on this machine"
    return Finding(
        id="cudnn-not-installed",
        severity="error" if _is_meant(context, got) else "info",
        title=f"{got.label} needs {want}; {lacking}",
        culprit=f"libcudnn.so.{got.major}" if got.major else "libcudnn",
        subject=got.subject,
        seen=(
            *_evidence(got),
            *(Evidence(what=f"too old for it: {c.version}", where=c.folder) for c in refused[:3]),
        ),
        why="without it the framework cannot be imported, or computes on the CPU without a word.",
        remedies=_provide(context, got),
    )


def _provide(context: Context, got: Got) -> tuple[Remedy, ...]:
    """By wheel into the framework's environment, and by the system."""
    cuda = got.framework.cuda or (got.need.cuda_built if got.need else None)
    major = got.major or 9
    environment = context.environment(got.framework.environment)
    found: list[Remedy] = []
    if cuda and cuda != "cpu":
        wheel = f"nvidia-cudnn-cu{cuda.split('.')[0]}=={major}.*"
        found.append(remedies.pip_install(environment, wheel, title="install the wheel"))
    found.append(remedies.install_cudnn(context, major, cuda))
    return tuple(found)


@rule("cudnn-not-installed", "cudnn", also=())
def no_cudnn_at_all(context: Context) -> Iterator[Finding]:
    """No cuDNN anywhere, and no framework that says which one it needs."""
    if context.copies or any(f.cuda != "cpu" for f in context.machine.frameworks):
        return
    cuda = next((t.version for t in context.machine.toolkits or () if t.version), None)
    yield Finding(
        id="cudnn-not-installed",
        severity="info" if not context.machine.partial else "warning",
        title="no cuDNN on this machine",
        culprit="libcudnn",
        seen=(Evidence(what="no libcudnn*.so in any folder looked into"),),
        why="nothing here needs it yet.",
        remedies=(remedies.install_cudnn(context, 9, cuda),),
    )


@rule("cudnn-major-mismatch", "frameworks")
def other_major_on_path(context: Context) -> Iterator[Finding]:
    """LD_LIBRARY_PATH names a cuDNN of a major that nothing here wants.

    A folder that is there for other things (the system's, a toolkit's, conda's) says nothing.
    """
    wanted = {got.major: got for got in all_got(context) if got.major}
    wanted |= {got.major: got for got in others_got(context) if got.subject and got.major}
    for copy in context.machine.copies or ():
        shared_folder = copy.kind in ("system", "toolkit", "conda", "bundled")
        if copy.folder not in context.search_path or shared_folder or not wanted:
            continue
        if copy.major is None or copy.major in wanted:
            continue
        got = next(iter(wanted.values()))
        yield Finding(
            id="cudnn-major-mismatch",
            severity="error",
            title=f"LD_LIBRARY_PATH names cuDNN {copy.major}; {got.label} here wants {got.major}",
            culprit=copy.folder,
            subject=got.subject,
            seen=(
                Evidence(what=f"cuDNN {copy.version or copy.major}", where=copy.folder),
                Evidence(what=f"{got.label} wants libcudnn.so.{got.major}", where=got.subject),
            ),
            why="what was put on the path is of no use to it, and whoever opens plain libcudnn.so"
            " gets the wrong major.",
            remedies=(remedies.without_folders(context, copy.folder),),
            avoid=("a link from one major's name to the other's file",),
        )
