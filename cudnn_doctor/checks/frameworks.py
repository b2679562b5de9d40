"""Rules about a framework and the version of the cuDNN that it gets."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from cudnn_doctor.checks import remedies
from cudnn_doctor.checks.context import Context, cudnn_wheels, parse
from cudnn_doctor.checks.got import Got
from cudnn_doctor.checks.loading import judged
from cudnn_doctor.checks.model import Evidence, Finding, Remedy
from cudnn_doctor.checks.registry import rule
from cudnn_doctor.checks.wheels import requirements
from cudnn_doctor.machine.model import Distribution
from cudnn_doctor.versions import CudnnVersion

_ANY_MINOR_SINCE = 8
"""From cuDNN 8 on frameworks accept a newer minor; before, many demanded the same one."""


@rule(
    "cudnn-older-than-framework-build",
    "frameworks",
    also=("ld-library-path-shadow", "cudnn-framework-version-mismatch"),
)
def wrong_version(context: Context) -> Iterator[Finding]:
    """The cuDNN that a framework gets is older than the one it was compiled against."""
    for got in judged(context):
        have, built = parse(got.version), parse(got.built)
        if have is None or built is None or got.other_versions:
            continue  # a mixture: mixing tells it better
        older = have.release[:2] < built.release[:2] and have.major == built.major
        exact = (
            "." in (got.built or "")
            and built.major < _ANY_MINOR_SINCE
            and have.release[:2] != built.release[:2]
        )
        if exact or have.major != built.major:
            yield _mismatch(context, got, have, built)
        elif older and got.via == "ld_library_path":
            yield _shadowed(context, got, have, built)
        elif older:
            yield _older(context, got, have, built)


def _evidence(got: Got, have: CudnnVersion, built: CudnnVersion) -> tuple[Evidence, ...]:
    because = got.plan.shim.because if got.plan and got.plan.shim else ""
    place = got.copy.folder if got.copy else ""
    return (
        Evidence(what=f"{got.label} gets cuDNN {have}", where=place, how=because or got.via),
        Evidence(what=f"compiled against {built}", where=got.framework.location, how="its build"),
    )


def _older(context: Context, got: Got, have: CudnnVersion, built: CudnnVersion) -> Finding:
    environment = context.environment(got.framework.environment)
    wheels = cudnn_wheels(environment) if environment else []
    line = f">={built.short},<{built.major + 1}"
    if wheels:
        cure = remedies.pip_install(
            environment, f"{wheels[0].name}{line}", title="update the wheel"
        )
    elif got.copy is not None and got.copy.kind == "conda":
        cure = Remedy(
            title="update it by conda", commands=(f"conda install 'cudnn{line}'",), automatic=True
        )
    else:
        cure = remedies.install_cudnn(context, built.major, got.framework.cuda, built.short)
    return Finding(
        id="cudnn-older-than-framework-build",
        severity="error",
        title=f"{got.label} was built with cuDNN {built.short} and gets {have.short}",
        culprit=f"cuDNN {have.short}",
        subject=got.subject,
        seen=_evidence(got, have, built),
        why="a framework refuses, or fails on, a cuDNN older in major.minor than the one it was"
        " compiled against; newer ones of the same major work.",
        remedies=(cure,),
        avoid=("downgrading the framework when a newer cuDNN is one command away",),
    )


def _shadowed(context: Context, got: Got, have: CudnnVersion, built: CudnnVersion) -> Finding:
    folder = got.copy.folder if got.copy else ""
    return Finding(
        id="ld-library-path-shadow",
        severity="error",
        title=f"LD_LIBRARY_PATH gives {got.label} cuDNN {have.short}, older than its {built.short}",
        culprit=f"LD_LIBRARY_PATH: {folder}",
        subject=got.subject,
        seen=(
            Evidence(
                what=f"LD_LIBRARY_PATH={context.machine.environ.get('LD_LIBRARY_PATH', '')}",
                how="environment",
            ),
            *_evidence(got, have, built),
        ),
        why="the loader takes LD_LIBRARY_PATH before the framework's own run path, and the"
        " framework refuses a cuDNN older than the one it was compiled against.",
        remedies=(remedies.without_folders(context, folder),)
        if folder in context.search_path
        else (Remedy(title="take the older copy off LD_LIBRARY_PATH"),),
        avoid=("installing more copies: the path decides, not what is installed",),
    )


def _mismatch(context: Context, got: Got, have: CudnnVersion, built: CudnnVersion) -> Finding:
    line = f"{built.major}.{built.minor}.*"
    return Finding(
        id="cudnn-framework-version-mismatch",
        severity="error",
        title=f"{got.label} demands cuDNN {built.major}.{built.minor} and gets {have.short}",
        culprit=f"cuDNN {have.short}",
        subject=got.subject,
        seen=_evidence(got, have, built),
        why="builds of that age accept only the release they were compiled against, no newer one.",
        remedies=(
            Remedy(
                title=f"give it cuDNN {built.short}",
                commands=(f"cudnn-doctor install --version '{line}'",),
            ),
            Remedy(title=f"or a release of {got.framework.name} built with {have.short}"),
        ),
    )


@rule("framework-built-with-older-cudnn", "frameworks")
def built_with_older_major_feature(context: Context) -> Iterator[Finding]:
    """A described build is much older than the cuDNN under it: new features are not reached."""
    for got in judged(context):
        have, built = parse(got.version), parse(got.built)
        if have is None or built is None or have.major != built.major or have.major < 8:
            continue
        if "." not in (got.framework.cudnn_built or "") or have.release[:2] <= built.release[:2]:
            continue
        yield Finding(
            id="framework-built-with-older-cudnn",
            severity="info",
            title=f"{got.label} was built with cuDNN {built.short}, older than {have.short}",
            culprit=got.label,
            subject=got.subject,
            seen=_evidence(got, have, built),
            why="it works; what came with later releases of cuDNN is not reached by that binary.",
            remedies=(Remedy(title=f"for such features, a build of {got.framework.name} with it"),),
        )


@rule("bundled-copy-wins", "frameworks")
def bundled_wins(context: Context) -> Iterator[Finding]:
    """A framework loads the copy inside it; the cuDNN wheel that was installed is not touched."""
    for got in judged(context):
        environment = context.environment(got.framework.environment)
        if got.copy is None or got.copy.kind != "bundled" or environment is None:
            continue
        for wheel in cudnn_wheels(environment):
            if _required(environment.distributions, wheel) or not parse(wheel.version):
                continue
            yield Finding(
                id="bundled-copy-wins",
                severity="info",
                title=f"{got.label} uses its own cuDNN {got.version}, not {wheel.name}"
                f" {wheel.version}",
                culprit=got.copy.folder,
                subject=got.subject,
                seen=(
                    Evidence(what=f"bundled cuDNN {got.version}", where=got.copy.folder),
                    Evidence(
                        what=f"{wheel.name} {wheel.version}: not loaded", where=wheel.location
                    ),
                ),
                why="this build carries cuDNN in its own folder and looks there first.",
                remedies=(
                    Remedy(
                        title=f"for another cuDNN, a build of {got.framework.name} that takes the"
                        " wheel"
                    ),
                ),
            )


def _required(distributions: tuple[Distribution, ...], wheel: Distribution) -> bool:
    return any(name == wheel.name for dist in distributions for name, _ in requirements(dist))


@rule("known-bad-release", "frameworks")
def known_bad(context: Context) -> Iterator[Finding]:
    """A framework's release is known to be broken."""
    for framework in context.machine.frameworks:
        need = context.need(framework)
        if need is None or not need.known_bad:
            continue
        label = f"{framework.name} {framework.version}"
        environment = context.environment(framework.environment)
        name = framework.distribution or framework.name
        yield Finding(
            id="known-bad-release",
            severity="error" if context.machine.partial or need.how != "inferred" else "warning",
            title=textwrap.shorten(f"{label}: {need.known_bad}", 99),
            culprit=label,
            subject=framework.environment,
            seen=(Evidence(what=need.known_bad, where=framework.location, how=need.source),),
            why="that build is known to fail; no setting of cuDNN mends it.",
            remedies=(
                remedies.pip_install(
                    environment,
                    f"{name}!={framework.version.partition('+')[0]}",
                    title="take another release",
                    force=False,
                ),
            ),
        )
