"""Rules about the GPUs themselves: generation, partition, visibility, memory."""

from __future__ import annotations

from collections.abc import Iterator

from cudnn_doctor.checks import remedies
from cudnn_doctor.checks.context import Context, numbers, parse
from cudnn_doctor.checks.got import Got, all_got
from cudnn_doctor.checks.model import Evidence, Finding, Remedy
from cudnn_doctor.checks.registry import Skip, rule
from cudnn_doctor.machine.model import CudnnCopy, Gpu

_LOW_MEMORY = 600 << 20
"""Bytes of GPU memory below which a CUDA context and cuDNN's first workspace hardly fit."""


def known_gpus(context: Context) -> list[Gpu]:
    """GPUs whose compute capability is known. Raises Skip where there is none."""
    found = [gpu for gpu in context.machine.gpus or () if gpu.compute_capability]
    if not found:
        raise Skip("no GPU of a known compute capability")
    return found


def loaded_copies(context: Context) -> Iterator[tuple[str, str | None, str, str]]:
    """Version, CUDA flavour, user and place of the cuDNN copies that are put to use."""
    users = [got for got in all_got(context) if got.version]
    for got in users:
        cuda = got.copy.cuda if got.copy and got.copy.cuda else got.framework.cuda
        yield got.version or "", cuda, got.label, got.subject
    if not users:
        for copy in context.machine.copies or ():
            if copy.version and not copy.private:
                yield copy.version, copy.cuda, "cuDNN", copy.folder


def floor_of(context: Context, version: str, cuda: str | None) -> str | None:
    """Lowest compute capability that a release supports."""
    variant = context.variant(version, cuda)
    if variant is not None:
        return variant.cc_min or (min(variant.cc, key=numbers) if variant.cc else None)
    release = context.release(version)
    floors = [v.cc_min for v in release.variants if v.cc_min] if release else []
    return min(floors, key=numbers, default=None)


@rule("gpu-too-old-for-cudnn", "gpu", gpu=True)
def too_old_for_cudnn(context: Context) -> Iterator[Finding]:
    """The cuDNN in use dropped a GPU's compute capability."""
    reported: set[tuple[str, str]] = set()
    for gpu in known_gpus(context):
        cc = gpu.compute_capability or ""
        for version, cuda, user, subject in loaded_copies(context):
            floor = floor_of(context, version, cuda) or _oldest_known(context, version)
            if not floor or numbers(cc) >= numbers(floor) or (cc, version) in reported:
                continue
            reported.add((cc, version))
            last = _last_supporting(context, cc)
            yield Finding(
                id="gpu-too-old-for-cudnn",
                severity="error",
                title=f"cuDNN {version} needs compute capability {floor}, {gpu.name} has {cc}",
                culprit=f"compute capability {cc} with cuDNN {version}",
                subject=subject,
                seen=(
                    Evidence(what=f"{gpu.name}: compute capability {cc}", how="NVML"),
                    Evidence(what=f"{user} gets cuDNN {version}", where=subject),
                ),
                why="that release holds no code for this GPU: calls fail with ARCH_MISMATCH,"
                " EXECUTION_FAILED or 'no kernel image', though the driver still supports it.",
                remedies=(
                    Remedy(
                        title=f"take the last release for it, {last}"
                        if last
                        else "no release that is known supports this GPU: use another GPU",
                        commands=(f"cudnn-doctor install --version '{last}'",) if last else (),
                    ),
                ),
                avoid=("a newer driver or a newer cuDNN",),
            )


def _oldest_known(context: Context, version: str) -> str | None:
    """For a release older than the matrix: 3.0, the floor of every cuDNN before 8.3."""
    parsed = parse(version)
    return "3.0" if parsed and parsed.major < 8 and context.release(version) is None else None


def _last_supporting(context: Context, cc: str) -> str | None:
    for release in reversed(context.matrix.releases):
        floors = [v.cc_min for v in release.variants if v.cc_min]
        if release.status == "release" and any(numbers(floor) <= numbers(cc) for floor in floors):
            return release.version
    return None


@rule("mig-one-instance", "gpu", gpu=True)
def mig(context: Context) -> Iterator[Finding]:
    """MIG is on: no instance, or one instance for each process."""
    for gpu in context.machine.gpus or ():
        if not gpu.mig_enabled:
            continue
        none = not gpu.mig_instances and not context.machine.partial
        create = "nvidia-smi mig -cgi 0 -C"
        yield Finding(
            id="mig-one-instance",
            severity="error" if none else "info",
            title=f"GPU {gpu.index} is in MIG mode "
            + ("without any instance" if none else "and a process sees one instance only"),
            culprit=f"GPU {gpu.index} (MIG)",
            seen=(
                Evidence(what=f"MIG on, {len(gpu.mig_instances)} instances", how="NVML"),
                *(Evidence(what=f"{i.profile} {i.uuid}".strip()) for i in gpu.mig_instances[:8]),
            ),
            why="CUDA enumerates no device on a MIG GPU without instances, and one instance a"
            " process with them: ordinals beyond 0 do not exist.",
            remedies=(
                (
                    Remedy(
                        title="create an instance, or turn MIG off",
                        commands=(remedies.as_root(context, create),),
                        needs_root=True,
                        safety="caution",
                    ),
                )
                if none
                else (
                    Remedy(
                        title="give each process one instance by its UUID",
                        commands=("export CUDA_VISIBLE_DEVICES=MIG-...",),
                    ),
                )
            ),
        )


@rule("gpu-hidden", "gpu", gpu=True)
def gpu_hidden(context: Context) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES or the compute mode hides a GPU."""
    gpus = context.machine.gpus
    if not gpus:
        raise Skip("no GPU answers")
    visible = context.machine.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and not _any_visible(visible, gpus):
        meant = visible.strip() in ("", "-1", "NoDevFiles")
        yield Finding(
            id="gpu-hidden",
            severity="warning" if meant else "error",
            title=f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU",
            culprit="CUDA_VISIBLE_DEVICES",
            seen=(
                Evidence(what=f"CUDA_VISIBLE_DEVICES={visible}", how="environment"),
                Evidence(what=f"{len(gpus)} GPU(s) there", how="NVML"),
            ),
            why="CUDA numbers only what this variable names, up to the first entry that is none.",
            remedies=(Remedy(title="unset it", commands=("unset CUDA_VISIBLE_DEVICES",)),),
        )
    for gpu in gpus:
        if gpu.compute_mode == "prohibited":
            command = f"nvidia-smi -i {gpu.index} -c DEFAULT"
            yield Finding(
                id="gpu-hidden",
                severity="error",
                title=f"GPU {gpu.index} is in compute mode prohibited",
                culprit="compute mode",
                seen=(Evidence(what="compute mode: prohibited", how="NVML"),),
                why="no program may create a CUDA context on it.",
                remedies=(
                    Remedy(
                        title="allow it",
                        commands=(remedies.as_root(context, command),),
                        needs_root=True,
                    ),
                ),
            )


def _any_visible(value: str, gpus: tuple[Gpu, ...]) -> bool:
    """Whether the first entry names a GPU: CUDA stops at the first one that does not."""
    first = value.partition(",")[0].strip()
    if first.isdecimal():
        return int(first) < len(gpus)
    uuids = [gpu.uuid for gpu in gpus] + [i.uuid for gpu in gpus for i in gpu.mig_instances]
    unknown = not any(uuids)
    return bool(first) and (unknown or any(uuid.startswith(first) for uuid in uuids))


@rule("out-of-memory-masked", "gpu", gpu=True)
def memory_nearly_full(context: Context) -> Iterator[Finding]:
    """A GPU has hardly any memory left: cuDNN reports that as other errors."""
    measured = [g for g in context.machine.gpus or () if g.memory_free is not None]
    if not measured:
        raise Skip("free GPU memory is not known")
    for gpu in measured:
        if (gpu.memory_free or 0) >= _LOW_MEMORY:
            continue
        yield Finding(
            id="out-of-memory-masked",
            severity="warning",
            title=f"GPU {gpu.index} has {(gpu.memory_free or 0) >> 20} MiB of memory left",
            culprit="GPU memory",
            seen=(
                Evidence(
                    what=f"free {(gpu.memory_free or 0) >> 20} of"
                    f" {(gpu.memory_total or 0) >> 20} MiB",
                    how="NVML",
                ),
            ),
            why="cuDNN then fails with NOT_INITIALIZED, INTERNAL_ERROR or 'no valid algorithm'.",
            remedies=(
                Remedy(title="see who holds it", commands=("nvidia-smi",)),
                Remedy(title="end those programs, or make batch or model smaller"),
            ),
            avoid=("reinstalling cuDNN",),
        )


@rule("jetson-package-mismatch", "gpu", gpu=True)
def jetson_mismatch(context: Context) -> Iterator[Finding]:
    """On Jetson a framework wants another cuDNN major than JetPack's."""
    if not context.machine.driver.jetpack:
        raise Skip("this is no Jetson")
    system = [c for c in context.machine.copies or () if c.major and not c.private]
    for got in all_got(context):
        majors = {c.major for c in system}
        if got.major is None or not majors or got.major in majors:
            continue
        yield _jetson_finding(context, got, system[0])


def _jetson_finding(context: Context, got: Got, copy: CudnnCopy) -> Finding:
    return Finding(
        id="jetson-package-mismatch",
        severity="error",
        title=f"{got.label} wants cuDNN {got.major}, this JetPack has {copy.version or copy.major}",
        culprit=got.label,
        subject=got.subject,
        seen=(
            Evidence(what=f"JetPack/L4T {context.machine.driver.jetpack}"),
            Evidence(what=f"cuDNN {copy.version or copy.major}", where=copy.folder),
        ),
        why="on Jetson cuDNN, driver and wheels belong to one JetPack release.",
        remedies=(
            Remedy(title=f"take the {got.framework.name} wheel built for this JetPack release"),
        ),
        avoid=("wheels for servers (sbsa): they do not run on Jetson's GPU driver",),
    )
