"""What each cuDNN release opens by itself, by which names and with which search tags: as data.

Measured on the x86_64 Linux wheels (dynamic sections of every wheel from 8.5 to 9.28.1, LD_DEBUG
and strings of some); where an installed file was read, its own tags count and not these.
"""

from __future__ import annotations

from typing import NamedTuple

from cudnn_doctor.machine.names import soname

Release = tuple[int, int, int]


class Opened(NamedTuple):
    """A part that some releases open at run time."""

    part: str
    by: str
    """The part that opens it; empty for the shim."""
    since: Release
    """First release that asks for it."""
    until: Release
    """First release that does not any more."""
    shipped: Release
    """First release whose packages hold it."""
    needs: tuple[str, ...] = ()
    """Sibling parts in its DT_NEEDED."""


_V8, _V9, _END = (8, 0, 0), (9, 0, 0), (10, 0, 0)

OPENS: tuple[Opened, ...] = (
    Opened("ops_infer", "", _V8, _V9, _V8),
    Opened("ops_train", "", _V8, _V9, _V8, ("ops_infer",)),
    Opened("cnn_infer", "", _V8, _V9, _V8, ("ops_infer",)),
    Opened("cnn_train", "", _V8, _V9, _V8, ("ops_infer", "ops_train", "cnn_infer")),
    Opened("adv_infer", "", _V8, _V9, _V8, ("ops_infer",)),
    Opened("adv_train", "", _V8, _V9, _V8, ("ops_infer", "ops_train", "adv_infer")),
    Opened("graph", "", _V9, _END, _V9),
    Opened("ops", "", _V9, _END, _V9, ("graph",)),
    Opened("cnn", "", _V9, _END, _V9, ("ops", "graph")),
    Opened("adv", "", _V9, _END, _V9, ("ops", "graph")),
    Opened("ext", "", (9, 22, 0), _END, (9, 22, 0)),
    Opened("engines_precompiled", "graph", _V9, _END, _V9, ("graph",)),
    Opened("engines_runtime_compiled", "graph", _V9, _END, _V9, ("graph",)),
    # The graph library of 9.20.0 (cu12, cu13) names it, that of 9.19.0 does not, and no wheel of
    # 9.20.0 has it: 9.20.0 takes what the loader finds elsewhere. Measured on these wheels.
    Opened("engines_tensor_ir", "graph", (9, 20, 0), _END, (9, 21, 0), ("graph",)),
    Opened("heuristic", "graph", _V9, _END, _V9, ("graph",)),
)
"""In the order in which a program that uses all of cuDNN meets them."""

JIT_PARTS = ("graph", "engines_runtime_compiled")
"""What the JIT flavour ships besides the shim (conda-forge's recipe, cuDNN's package lists)."""

RPATH_SHIM_SINCE: Release = (9, 21, 1)
"""The shim carries DT_RPATH $ORIGIN from here on, DT_RUNPATH $ORIGIN before."""
_PART_RUNPATHS: tuple[tuple[Release, str], ...] = (
    ((8, 0, 0), "$ORIGIN:$ORIGIN/../../cublas/lib"),
    ((8, 9, 0), "$ORIGIN:$ORIGIN/../../cublas/lib:$ORIGIN/../../nvrtc/lib"),
    ((9, 11, 0), "$ORIGIN:$ORIGIN/../../cublas/lib:$ORIGIN/../../cuda_nvrtc/lib"),
)
_CU13_RUNPATH_SINCE: Release = (9, 17, 0)
LIBCUDA_NEEDED_SINCE: Release = (9, 27, 0)
"""``engines_runtime_compiled`` names libcuda.so.1 in DT_NEEDED from here on."""


class Tags(NamedTuple):
    rpath: str | None
    runpath: str | None


def opened(release: Release, by: str) -> tuple[Opened, ...]:
    """Parts that the shim (``by`` empty) or a part of this release opens."""
    return tuple(o for o in OPENS if o.by == by and o.since <= release < o.until)


def shipped(release: Release) -> tuple[str, ...]:
    """Parts that the full packages of a release hold."""
    return tuple(o.part for o in OPENS if o.shipped <= release < o.until)


def names_tried(part: str, release: Release, exact: bool) -> tuple[str, ...]:
    """File names that a release passes to dlopen for a part, in order.

    cuDNN 9 tries ``.so.X.Y.Z``, ``.so.X.Y``, ``.so.X``, ``.so``; cuDNN 8 ``.so.8`` alone.
    ``exact`` is False when only the major of ``release`` is known.
    """
    base = soname(part, None)
    major, minor, patch = release
    if major < 9:
        return (f"{base}.{major}",)
    precise = (f"{base}.{major}.{minor}.{patch}", f"{base}.{major}.{minor}") if exact else ()
    return (*precise, f"{base}.{major}", base)


def tags(part: str, release: Release, cuda: str | None) -> Tags:
    """Search tags of a part (empty: the shim) in NVIDIA's builds of a release."""
    if not part:
        return Tags("$ORIGIN", None) if release >= RPATH_SHIM_SINCE else Tags(None, "$ORIGIN")
    runpath = [path for since, path in _PART_RUNPATHS if since <= release][-1:]
    extra = ":$ORIGIN/../../cu13/lib" if cuda == "13" and release >= _CU13_RUNPATH_SINCE else ""
    return Tags(None, runpath[0] + extra if runpath else None)


def needed(part: str, release: Release) -> tuple[str, ...]:
    """Those of a part's DT_NEEDED entries that matter here."""
    siblings = tuple(
        soname(name, release[0])
        for o in OPENS
        if o.part == part and o.since <= release < o.until
        for name in o.needs
    )
    driver = part == "engines_runtime_compiled" and release >= LIBCUDA_NEEDED_SINCE
    return (*siblings, "libcuda.so.1") if driver else siblings


class Companion(NamedTuple):
    """A CUDA library that a part opens by name; ``N`` stands for the copy's CUDA major."""

    name: str
    by: tuple[str, ...]
    """Parts that open it, most telling first."""
    since: Release
    until: Release
    cuda_min: int = 0


COMPANIONS: tuple[Companion, ...] = (
    Companion("libcublas.so.N", ("ops_infer",), _V8, _V9),
    Companion("libcublasLt.so.N", ("ops_infer",), _V8, _V9),
    Companion("libcublasLt.so.N", ("engines_precompiled", "adv"), _V9, _END),
    Companion("libnvrtc.so.N", ("ops_infer",), _V8, _V9),
    Companion("libnvrtc.so.N", ("engines_precompiled", "engines_runtime_compiled"), _V9, _END),
    Companion("libnvJitLink.so.N", ("engines_tensor_ir",), (9, 21, 0), _END, 13),
    Companion("libcuda.so.1", ("ops", "ops_infer", "graph"), _V8, _END),
    Companion("libz.so.1", ("graph", "cnn_infer"), (8, 3, 0), _END),
)
"""Names embedded in the parts (strings of the 8.9.7, 9.1.0, 9.10.2, 9.24.0 and 9.28 wheels)."""


def companion_soname(companion: Companion, cuda: str | None) -> str | None:
    """Its SONAME for a CUDA major; None where the major is needed and not known, or too low.

    NVRTC 11 broke the rule: its SONAME is libnvrtc.so.11.2 for 11.2 to 11.8.
    """
    if not companion.name.endswith(".N"):
        return companion.name
    if cuda is None or not cuda.isdigit() or int(cuda) < companion.cuda_min:
        return None
    major = "11.2" if cuda == "11" and companion.name.startswith("libnvrtc.") else cuda
    return companion.name.removesuffix("N") + major
