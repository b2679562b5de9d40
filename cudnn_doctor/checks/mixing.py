"""Rules about frameworks that get another cuDNN than intended, or parts of two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cudnn_doctor.checks import remedies
from cudnn_doctor.checks.context import Context, folder_of, parse, same_release
from cudnn_doctor.checks.copies import shipped
from cudnn_doctor.checks.files import restore
from cudnn_doctor.checks.got import Got, accepts, all_got, others_got, place
from cudnn_doctor.checks.model import Evidence, Finding, Remedy
from cudnn_doctor.checks.registry import rule
from cudnn_doctor.machine.loads import Load, LoadPlan
from cudnn_doctor.machine.model import CudnnCopy
from cudnn_doctor.machine.opens import RPATH_SHIM_SINCE


def searches_path_first(context: Context, copy: CudnnCopy) -> bool:
    """Whether LD_LIBRARY_PATH can swap this copy's sublibraries (its shim has DT_RUNPATH)."""
    shim = context.libraries.get(f"{copy.folder}/{copy.shim}") if copy.shim else None
    if shim is not None and (shim.rpath or shim.runpath):
        return not shim.rpath
    parsed = parse(copy.version)
    return parsed is None or parsed.release < RPATH_SHIM_SINCE


@rule("mixed-cudnn-copies", "frameworks", also=("ld-library-path-shadow", "cudnn-wheel-incomplete"))
def mixed_copies(context: Context) -> Iterator[Finding]:
    """A process would get the shim of one copy and sublibraries of another release."""
    for got in (*all_got(context), *others_got(context)):
        if got.plan is not None and got.plan.sublibraries and got.plan.shim:
            yield from _judge_plan(context, got, got.plan, got.plan.shim)
        elif got.copy is not None:
            yield from _judge_described(context, got, got.copy)


def _judge_plan(context: Context, got: Got, plan: LoadPlan, shim: Load) -> Iterator[Finding]:
    """The simulated plan: every sublibrary must be of one release, the shim's own if it has any."""
    loads = [load for load in plan.sublibraries if load.path]
    private = plan.consumer.scheme == "ct2-bundled-shim"
    base = shim.version or got.version
    if private or base is None:
        base = next((load.version for load in loads if load.version), None)
    strays = [load for load in loads if _is_stray(context, load, base, plan.folder)]
    if not strays or base is None:
        return
    copy = context.copy_at(plan.folder)
    names = shipped(context, copy) if copy else None
    extra = [load for load in strays if names is not None and load.name not in names]
    if extra and len(extra) == len(strays) and copy is not None:
        yield _wheel_incomplete(context, got, copy, extra[0])
    elif any(load.via == "ld_library_path" for load in strays):
        folders = dict.fromkeys(
            folder_of(x.path) for x in strays if x.path and x.via == "ld_library_path"
        )
        yield _shadow(
            context,
            got,
            base,
            tuple(folders),
            strays[0].version or "of an unknown release",
            *strays,
        )
    else:
        yield _mixed(context, got, base, strays)


def _is_stray(context: Context, load: Load, base: str | None, folder: str | None) -> bool:
    """Of another release; of an unknown one, and from elsewhere by way of the loader's path."""
    same = same_release(load.version, base)
    if same is not None:
        return not same
    if _same_file(context, load, folder):
        return False
    elsewhere = folder_of(load.path or "") != folder and folder_of(load.real or "") != folder
    return elsewhere and load.via in ("ld_library_path", "cache", "default")


def _same_file(context: Context, load: Load, folder: str | None) -> bool:
    """Whether it is as long as the copy's own file of that name: releases differ in size."""
    sizes = [
        library.size
        for path in (load.real or load.path or "", f"{folder}/{load.name}")
        if (library := context.libraries.get(path)) is not None
    ]
    return len(sizes) == 2 and sizes[0] is not None and sizes[0] == sizes[1]


def _sources(strays: Sequence[Load]) -> tuple[Evidence, ...]:
    """The strays, those of one folder and release together."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for load in strays:
        key = (folder_of(load.path or ""), load.version or "of an unknown release", load.because)
        groups.setdefault(key, []).append(load.name)
    return tuple(
        Evidence(
            what=f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} {version}",
            where=folder,
            how=because,
        )
        for (folder, version, because), names in groups.items()
    )


def _judge_described(context: Context, got: Got, copy: CudnnCopy) -> Iterator[Finding]:
    """A description: the copy it finds against those on the loader's path."""
    if got.via == "ld_library_path" and got.built is None:
        return
    for other in context.copies:
        way = place(context, other)
        if other is copy or other.major != copy.major or copy.version is None:
            continue
        if got.via == "ld_library_path":
            continue
        if same_release(other.version, copy.version) or other.kind == copy.kind:
            continue
        if way == "ld_library_path" and searches_path_first(context, copy):
            shown = other.folder or "a folder on LD_LIBRARY_PATH"
            yield _shadow(context, got, copy.version, (shown,), other.version or "another")
        elif way in ("system", "") and not other.lacks and copy.lacks:
            stray = Load(name=copy.lacks[0], path=f"{other.folder}/{copy.lacks[0]}", via="cache")
            yield _wheel_incomplete(context, got, copy, stray)


def _shadow(
    context: Context,
    got: Got,
    own: str,
    folders: tuple[str, ...],
    foreign: str,
    *strays: Load,
) -> Finding:
    shown = ", ".join(folders)
    listed = [folder for folder in folders if folder in context.search_path]
    name = got.framework.name
    tolerated = _tolerates(got, foreign)
    effect = (
        "it was seen to work so; its own release is not what runs."
        if tolerated
        else "it refuses the version, or aborts on an undefined symbol."
    )
    return Finding(
        id="ld-library-path-shadow",
        severity="info" if tolerated else "error",
        title=f"LD_LIBRARY_PATH gives {got.label} cuDNN {foreign} from {shown}",
        culprit=f"LD_LIBRARY_PATH: {shown}",
        subject=got.subject,
        seen=(
            Evidence(
                what=f"LD_LIBRARY_PATH={context.machine.environ.get('LD_LIBRARY_PATH', '')}",
                how="environment",
            ),
            Evidence(
                what=f"{name} gets its own shim {own}",
                where=got.copy.folder if got.copy else "",
                how=got.plan.shim.because if got.plan and got.plan.shim else "",
            ),
            *_sources(strays),
        ),
        why=f"the shim of {own} opens its sublibraries by name and LD_LIBRARY_PATH comes before its"
        f" own folder, so {name} runs {own} with parts of {foreign}: {effect}",
        remedies=(
            *((remedies.without_folders(context, *listed),) if listed else ()),
            *(
                (remedies.with_folder(got.copy.folder, title="or put its own folder first"),)
                if got.copy and got.copy.folder
                else ()
            ),
        ),
        avoid=("installing another cuDNN to match the message", "downgrading the framework"),
    )


def _tolerates(got: Got, foreign: str) -> bool:
    """JAX was seen to work with its wheel's shim over another release's parts (9.19.0, 9.14.0), as
    long as they are no older than what it was built with or asks for."""
    is_jax = got.plan is not None and got.plan.consumer.scheme == "jax-preload-then-rpath"
    return is_jax and accepts(got, foreign) is True


def _wheel_incomplete(context: Context, got: Got, copy: CudnnCopy, stray: Load) -> Finding:
    environment = context.environment(copy.environment)
    owner = next((owner for owner in copy.owners if owner.kind == "wheel"), None)
    label = f"{owner.name} {owner.version}" if owner else f"cuDNN {copy.version}"
    name = owner.name if owner else f"nvidia-cudnn-cu{copy.cuda or '13'}"
    version = parse(copy.version)
    newer = f"{name}>{owner.version if owner else version},<{(version.major if version else 9) + 1}"
    return Finding(
        id="cudnn-wheel-incomplete",
        severity="error",
        title=f"{label} has no {stray.name}; {got.label} gets another copy's",
        culprit=label,
        subject=copy.folder,
        seen=(
            Evidence(what=f"{stray.name} is not among its files", where=copy.folder),
            Evidence(
                what=f"taken instead: {stray.version or 'another release'}",
                where=stray.path or "",
                how=stray.because,
            ),
        ),
        why="its graph library asks for that name, the published wheel does not hold it, and the"
        " loader falls through to a copy of another release or CUDA.",
        remedies=(
            remedies.pip_install(environment, newer, title="take a release that is complete"),
            Remedy(
                title="or take the other copy off the loader's path",
                changes=f"{folder_of(stray.path or '')}",
            ),
        ),
        avoid=("reinstalling the same wheel: the file is not in it",),
    )


def _mixed(context: Context, got: Got, base: str, strays: list[Load]) -> Finding:
    first = strays[0]
    folder = folder_of(first.path or "")
    own = got.plan.folder if got.plan else None
    return Finding(
        id="mixed-cudnn-copies",
        severity="error",
        title=f"{got.label} would mix cuDNN {base} with {first.name} of {first.version}",
        culprit=first.path or first.name,
        subject=got.subject,
        seen=(
            Evidence(what=f"shim {base}", where=own or ""),
            *_sources(strays),
        ),
        why="parts of two releases in one process fail with undefined symbols, version mismatch"
        " errors or a segmentation fault.",
        remedies=(
            *((restore(context, own),) if own and folder != own else ()),
            *((remedies.with_folder(own),) if own else ()),
        ),
    )


@rule("mixed-cudnn-copies", "frameworks")
def two_in_one_process(context: Context) -> Iterator[Finding]:
    """CTranslate2 would get another release than torch in the same environment.

    Programs such as whisperX load both into one process: which copy a name resolves to then
    depends on who came first.
    """
    answers = all_got(context)
    for host in (got for got in answers if got.framework.name == "torch" and got.version):
        for guest in answers:
            together = guest.framework.name == "ctranslate2" and guest.subject == host.subject
            if not together or same_release(guest.version, host.version) is not False:
                continue
            own = host.copy.folder if host.copy else ""
            yield Finding(
                id="mixed-cudnn-copies",
                severity="warning",
                title=f"{guest.label} gets cuDNN {guest.version}, torch beside it {host.version}",
                culprit=guest.copy.folder if guest.copy else guest.label,
                subject=guest.subject,
                seen=tuple(
                    Evidence(
                        what=f"{got.label}: cuDNN {got.version}",
                        where=got.copy.folder if got.copy else "",
                        how=got.via,
                    )
                    for got in (host, guest)
                ),
                why="in one process (whisperX) parts of both get mapped, and a call from one into"
                " the other's libraries ends in a segmentation fault.",
                remedies=(remedies.with_folder(own),) if own else (),
                avoid=("one more copy of cuDNN",),
            )
