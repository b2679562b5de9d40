"""What the code in a cuDNN release means for GPUs, and the matrix's row that says so.

Rules, as in the notes at the head of ``compat_matrix.yaml``: a GPU is served when every library
that carries kernels has code that runs on it; a few kernels of its own beside a full older set make
it partial; PTX counts only where every such library has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from cudnn_doctor.errors import BadInput
from cudnn_doctor.machine.inspection import Inspection, LibraryContent
from cudnn_doctor.matrix.capability import runs
from cudnn_doctor.matrix.model import Archive, Release, Variant, Wheel
from cudnn_doctor.matrix.specs import version_key

SOURCE = "inspected"
"""Id in ``Matrix.sources`` of what this tool measured."""
_INDEX = "wheel-index"
_COMPILES_OWN = "tensor_ir"
"""This engine compiles its kernels at run time: the few cubins in it decide nothing."""
_TAGS = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}
"""manylinux1 was never true of cuDNN's wheels: for a flavour the libraries are measured instead."""


class Capabilities(NamedTuple):
    """As `Variant.cc`, `Variant.cc_partial` and `Variant.ptx`."""

    cc: tuple[str, ...]
    cc_partial: tuple[str, ...]
    ptx: tuple[str, ...]


def capabilities(libraries: Mapping[str, LibraryContent]) -> Capabilities | None:
    """Which GPUs the libraries' code serves; None when none of them carries kernels."""
    carrying = [
        content for name, content in libraries.items() if content.sass and _COMPILES_OWN not in name
    ]
    if not carrying:
        return None
    codes = [{capability(arch) for arch in content.sass} for content in carrying]
    texts = [{capability(arch) for arch in content.ptx} for content in carrying]
    every = {capability(arch).rstrip("a") for c in libraries.values() for arch in c.sass}
    full = _sorted(cc for cc in every if _is_full(cc, codes))
    return Capabilities(full, _sorted(every.difference(full)), _sorted(set.intersection(*texts)))


def _is_full(cc: str, carriers: list[set[str]]) -> bool:
    """Every carrier has code that runs on ``cc``, and at least half of them code of its own."""
    wanted = version_key(cc)
    served = all(any(_serves(code, wanted) for code in carrier) for carrier in carriers)
    own = sum(any(code.rstrip("a") == cc for code in carrier) for carrier in carriers)
    return served and 2 * own >= len(carriers)


def _serves(code: str, cc: tuple[int, ...]) -> bool:
    """Code of a cubin: ``a`` serves exactly its own capability, plain code newer minors too."""
    own = version_key(code)
    return own == cc if code.endswith("a") else runs(own, cc)


def capability(arch: str) -> str:
    """``sm_90a`` is ``9.0a``."""
    digits = arch.removeprefix("sm_").rstrip("af")
    return f"{digits[:-1]}.{digits[-1:]}{arch[len('sm_') + len(digits) :]}"


def _sorted(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(values, key=lambda value: (version_key(value), value)))


def release_of(found: Inspection) -> Release:
    """The matrix's row for what was inspected, with provenance.

    Raises BadInput when a library is damaged or nothing tells the release or its CUDA.
    """
    damaged = [name for name, content in found.libraries.items() if content.damage]
    if damaged:
        what = f"{damaged[0]}: {found.libraries[damaged[0]].damage}"
        raise BadInput(f"no row for a damaged copy: {what}", where=found.file)
    if not (found.release and found.cuda):
        raise BadInput(
            "neither its name nor a header tells which release, or for which CUDA, it is",
            where=found.file,
            next_step="inspect the wheel or the archive as it was downloaded",
        )
    libraries = tuple(found.libraries)
    return Release(
        version=found.release,
        build=found.version,
        source=SOURCE,
        libraries=None if found.jit else libraries,
        jit_libraries=libraries if found.jit else None,
        variants=(
            Variant(cuda=found.cuda, source=SOURCE) if found.jit else _variant(found, found.cuda),
        ),
        archives=_archive(found),
        wheels=_wheel(found),
    )


def _variant(found: Inspection, cuda: str) -> Variant:
    shim = next(iter(found.libraries.values()))
    # the matrix's capabilities are those of x86_64 builds: others add GPUs such as Thor (11.0)
    code = capabilities(found.libraries) if shim.machine == "x86_64" else None
    tagged = None if "manylinux1_" in found.file else _glibc_of_tag(found.file)
    needed = [c.glibc for c in found.libraries.values() if c.glibc]
    glibc = tagged or max(needed, key=version_key, default=None)
    return Variant(
        cuda=cuda,
        cc_min=code.cc[0] if code and code.cc else None,
        cc_max=code.cc[-1] if code and code.cc else None,
        cc=code.cc if code else None,
        cc_partial=code.cc_partial if code else (),
        ptx=code.ptx if code else None,
        glibc=glibc,
        shim_search=_search_tag(shim),
        needs_driver=tuple(n for n, c in found.libraries.items() if "libcuda.so.1" in c.needed),
        source=SOURCE,
        sources={"glibc": _INDEX} if tagged else {},
    )


def _search_tag(shim: LibraryContent) -> Literal["rpath", "runpath"] | None:
    if shim.runpath:  # with both, the loader ignores the other
        return "runpath"
    return "rpath" if shim.rpath else None


def _glibc_of_tag(file: str) -> str | None:
    """What a wheel's manylinux tag promises (PEP 513, 571, 599 and 600)."""
    newest = re.search(r"manylinux_2_(\d+)_", file)
    if newest:
        return f"2.{newest[1]}"
    return next((glibc for tag, glibc in _TAGS.items() if f"{tag}_" in file), None)


def _wheel(found: Inspection) -> tuple[Wheel, ...]:
    """None for the JIT flavour: the matrix lists the full one's wheels only."""
    if found.kind != "wheel" or found.jit or not (found.package and found.version):
        return ()
    arch = re.search(r"_(x86_64|aarch64|ppc64le)\.whl$", found.file)
    row = Wheel(
        package=found.package,
        version=found.version,
        file=found.file,
        arch=arch[1] if arch else next(iter(found.libraries.values())).machine or "",
        glibc=_glibc_of_tag(found.file),
        size=found.size,
        sha256=found.sha256,
        requires=found.requires,
    )
    return (row,)


def _archive(found: Inspection) -> tuple[Archive, ...]:
    """Only for today's names, which tell the path below the redist folder."""
    if found.kind != "archive" or not (found.platform and found.cuda):
        return ()
    if not found.file.startswith("cudnn") or not found.file.endswith("-archive.tar.xz"):
        return ()
    component = found.file.partition("-linux-")[0]
    row = Archive(
        platform=found.platform,
        cuda=found.cuda,
        flavour="jit" if found.jit else "full",
        path=f"{component}/{found.platform}/{found.file}",
        size=found.size,
        sha256=found.sha256,
        confirmed=1,
    )
    return (row,)
