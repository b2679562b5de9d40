"""Rules about the CUDA libraries that a framework's own objects name, cuDNN aside."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cudnn_doctor.checks import remedies
from cudnn_doctor.checks.context import Context, distribution, file_of, folder_of
from cudnn_doctor.checks.cuda import wheel_of
from cudnn_doctor.checks.model import Evidence, Finding
from cudnn_doctor.checks.registry import Skip, rule
from cudnn_doctor.checks.wheels import requirements
from cudnn_doctor.machine.model import Framework

_STEMS = frozenset(
    (
        "libcublas",
        "libcublasLt",
        "libcudart",
        "libcufft",
        "libcurand",
        "libcusolver",
        "libcusparse",
        "libnccl",
        "libnvJitLink",
        "libnvrtc",
    )
)
"""Libraries of which the probes know every file; of others absence is not known."""


@rule("other-cuda-lib-missing", "frameworks", also=("framework-deps-not-installed",))
def framework_lacks_libraries(context: Context) -> Iterator[Finding]:
    """A framework's objects name CUDA libraries that are nowhere on their way."""
    if context.machine.partial or context.machine.loader.cache is None:
        raise Skip("which libraries the loader finds is not known")
    for framework in context.machine.frameworks:
        missing = _missing(context, framework)
        if missing and framework.cuda != "cpu":
            yield _finding(context, framework, missing)


@rule("other-cuda-lib-missing", "frameworks")
def opens_cublas_by_name(context: Context) -> Iterator[Finding]:
    """CTranslate2 opens cuBLAS by name: only the loader's own path counts, not its environment."""
    if context.machine.partial or context.machine.loader.cache is None:
        raise Skip("which libraries the loader finds is not known")
    for framework in context.machine.frameworks:
        need = context.need(framework) if framework.name == "ctranslate2" else None
        if need is None or need.cuda_major is None:
            continue
        name = f"libcublas.so.{need.cuda_major}"
        if name in _on_path(context):
            continue
        beside_torch = any(  # which maps it, where a program imports both
            other.name == "torch" and other.environment == framework.environment
            for other in context.machine.frameworks
        )
        finding = _finding(context, framework, [name])
        inside = [
            library.path
            for library in context.by_name.get(name, ())
            if library.path.startswith(f"{framework.environment}/")
        ]
        cure = (remedies.with_folder(folder_of(inside[0])),) if inside else finding.remedies
        yield msgspec.structs.replace(
            finding,
            severity="error" if context.machine.gpus and not beside_torch else "info",
            title=f"{framework.name} {framework.version} opens {name}: not on the loader's path",
            seen=(
                Evidence(what=f"{name}: not on the loader's path", how="opened by name"),
                *(Evidence(what="there, and not looked at", where=path) for path in inside[:2]),
            ),
            why="work on the GPU ends with 'Library libcublas is not found or cannot be loaded'.",
            remedies=cure,
        )


def _on_path(context: Context) -> set[str]:
    """Names that the loader finds without any help of the program."""
    loader = context.machine.loader
    places = {*context.search_path, *loader.default_folders, *loader.conf_folders}
    there = {entry.soname for entry in loader.cache or ()}
    return there | {
        file_of(library.path)
        for library in context.machine.libraries
        if folder_of(library.path) in places and library.status != "dangling"
    }


def _missing(context: Context, framework: Framework) -> list[str]:
    """Needed names of which no file is in the environment or on the loader's path."""
    objects = [context.libraries[path] for path in framework.binaries if path in context.libraries]
    needed = dict.fromkeys(name for library in objects for name in library.needed)
    wanted = [name for name in needed if name.partition(".so")[0] in _STEMS]
    if not wanted:
        return []
    there = _on_path(context) | {
        file_of(library.path)
        for library in context.machine.libraries
        if library.path.startswith(f"{framework.environment}/")
    }
    return [name for name in wanted if name not in there]


def _finding(context: Context, framework: Framework, missing: list[str]) -> Finding:
    environment = context.environment(framework.environment)
    own = framework.distribution or framework.name
    dist = distribution(environment, own) if environment else None
    asked = dict(requirements(dist)) if dist else {}
    installed = {d.name for d in environment.distributions} if environment else set()
    lacking = [name for name in asked if name.startswith("nvidia-") and name not in installed]
    cuda = (framework.cuda or "12").split(".")[0]
    wheels = [f"{name}{asked[name]}" for name in lacking]
    wheels = wheels or list(dict.fromkeys(filter(None, (wheel_of(x, cuda) for x in missing))))
    label = f"{framework.name} {framework.version}"
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    title = f"{label} needs {missing[0]}{more}, found nowhere"
    return Finding(
        id="framework-deps-not-installed" if lacking else "other-cuda-lib-missing",
        severity="error",
        title=title,
        culprit=", ".join(lacking) or missing[0],
        subject=framework.environment,
        seen=(
            Evidence(what=f"not found: {', '.join(missing)}", how="DT_NEEDED of its objects"),
            *(
                (Evidence(what=f"not installed: {', '.join(lacking)}", how=f"{own}'s metadata"),)
                if lacking
                else ()
            ),
        ),
        why="the framework cannot be imported, or falls back to the CPU: cuDNN is not the fault.",
        remedies=(remedies.pip_install(environment, *wheels, title="install what is missing"),)
        if wheels
        else (),
        avoid=("reinstalling cuDNN",),
    )
