"""Rules about the driver's library libcuda: the stub, the compat copy, the unversioned name."""

from __future__ import annotations

from collections.abc import Iterator

from cudnn_doctor.checks import remedies
from cudnn_doctor.checks.context import Context, folder_of, numbers
from cudnn_doctor.checks.model import Evidence, Finding, Remedy
from cudnn_doctor.checks.registry import Skip, rule

_CONSUMER_GPUS = ("geforce", "titan", "rtx 20", "rtx 30", "rtx 40", "rtx 50", "gtx")
"""Product lines on which the driver refuses forward compatibility (error 804)."""


@rule("libcuda-stub-shadow", "toolkit")
def libcuda_stub(context: Context) -> Iterator[Finding]:
    """The link-time stub of libcuda comes before the driver's library."""
    places = [folder for folder in context.search_path if folder.endswith("/stubs")]
    how = f"LD_LIBRARY_PATH={context.machine.environ.get('LD_LIBRARY_PATH', '')}"
    if not places:
        cache = context.machine.loader.cache or ()
        first = next((entry for entry in cache if entry.soname == "libcuda.so.1"), None)
        if first is not None and "/stubs" in first.path:
            places, how = [folder_of(first.path)], "ld.so.cache"
    if not places:
        if not context.search_path and context.machine.loader.cache is None:
            raise Skip("the loader's path is not known")
        return
    folder = places[0]
    on_path = folder in context.search_path
    yield Finding(
        id="libcuda-stub-shadow",
        severity="error",
        title=f"the stub of libcuda in {folder} comes before the driver's library",
        culprit=folder,
        seen=(Evidence(what=how, where=folder, how="loader's path"),),
        why="the stub exists for linking only: programs that load it see no GPU, or fail with"
        " CUDA_ERROR_STUB_LIBRARY (34).",
        remedies=(
            remedies.without_folders(context, *places)
            if on_path
            else Remedy(
                title="take the folder out of the loader's configuration",
                commands=(
                    f"grep -rl {folder} /etc/ld.so.conf.d/",
                    remedies.as_root(context, "ldconfig"),
                ),
                needs_root=True,
                safety="caution",
            ),
        ),
        avoid=("copying the stub over libcuda.so.1",),
    )


@rule("compat-libcuda-on-geforce", "toolkit", gpu=True)
def compat_on_geforce(context: Context) -> Iterator[Finding]:
    """The forward-compatibility libcuda is found first on a GPU that does not support it."""
    gpus = context.machine.gpus or ()
    if not gpus:
        raise Skip("no GPU is known")
    place = _compat_place(context)
    consumer = [g for g in gpus if any(word in g.name.lower() for word in _CONSUMER_GPUS)]
    if not place or not consumer:
        return
    driver = context.machine.driver
    yield Finding(
        id="compat-libcuda-on-geforce",
        severity="error",
        title=f"compat libcuda ({place}) on {consumer[0].name}, which does not support it",
        culprit=place,
        seen=(
            Evidence(what="libcuda.so.1 of the cuda-compat package comes first", where=place),
            Evidence(what=f"driver {driver.version}, {consumer[0].name}", how="NVML"),
        ),
        why="forward compatibility exists for data-centre GPUs only: cuInit fails with 'forward"
        " compatibility was attempted on non supported HW' (804).",
        remedies=(
            *(
                (remedies.without_folders(context, place),)
                if place in context.search_path
                else (
                    Remedy(
                        title="keep the compat folder off the loader's path",
                        commands=(
                            remedies.as_root(context, "rm -f /etc/ld.so.conf.d/*compat*.conf"),
                            remedies.as_root(context, "ldconfig"),
                        ),
                        needs_root=True,
                        safety="caution",
                    ),
                )
            ),
            Remedy(title="use an image whose CUDA this driver supports, or update the driver"),
        ),
    )


def _compat_place(context: Context) -> str:
    """Folder of a compat libcuda that is found first, or a description of how it shows."""
    for folder in context.search_path:
        if "/compat" in folder:
            return folder
    cache = context.machine.loader.cache or ()
    first = next((entry for entry in cache if entry.soname == "libcuda.so.1"), None)
    if first is not None and "/compat/" in first.path:
        return folder_of(first.path)
    mapped = [lib.path for lib in context.machine.libraries if "/compat/libcuda.so" in lib.path]
    driver = context.machine.driver
    told, own = numbers(driver.cuda), _branch_cuda(context)
    if mapped and (context.machine.partial or (own and told > own)):
        return folder_of(mapped[0])
    return "a libcuda newer than the driver" if own and told > own else ""


def _branch_cuda(context: Context) -> tuple[int, ...]:
    """The CUDA that this driver's branch supports by itself."""
    branch = (context.machine.driver.version or "").split(".")[0]
    row = next((b for b in context.matrix.driver_branches if b.branch == branch), None)
    return numbers(row.cuda) if row else ()


@rule("libcuda-unversioned-missing", "toolkit", gpu=True)
def libcuda_unversioned(context: Context) -> Iterator[Finding]:
    """On WSL2 only libcuda.so.1 is registered, and cuDNN 8 opens libcuda.so."""
    if not context.machine.system.wsl:
        raise Skip("this is not WSL2")
    cache = context.machine.loader.cache
    if cache is None:
        raise Skip("the loader's cache is not known")
    names = {entry.soname for entry in cache}
    majors = {copy.major for copy in context.machine.copies or ()}
    if "libcuda.so" in names or "libcuda.so.1" not in names or 8 not in majors:
        return
    folder = folder_of(next(e.path for e in cache if e.soname == "libcuda.so.1"))
    if folder in context.search_path:
        return
    yield Finding(
        id="libcuda-unversioned-missing",
        severity="warning",
        title=f"{folder} registers libcuda.so.1 only; cuDNN 8 opens libcuda.so",
        culprit=f"{folder}/libcuda.so",
        seen=(Evidence(what="libcuda.so.1, no libcuda.so", where="/etc/ld.so.cache"),),
        why="ldconfig registers SONAMEs only, so dlopen('libcuda.so') finds nothing: 'Could not"
        " load library libcudnn_cnn_infer.so.8. Error: libcuda.so'.",
        remedies=(remedies.with_folder(folder),),
        avoid=("reinstalling cuDNN: its file is there",),
    )
