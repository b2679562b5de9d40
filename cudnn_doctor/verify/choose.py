"""Which copy to prove and on which GPUs. Pure: works on a `Machine`."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.machine.loads import LoadPlan
from cudnn_doctor.machine.model import Gpu, Library, Machine
from cudnn_doctor.machine.names import parse_cudnn
from cudnn_doctor.verify.model import Copy, Target

_SONAME = re.compile(r"libcudnn(?:_\w+)?\.so\.(\d+)")


class Chosen(NamedTuple):
    """A copy and the files of its folder."""

    copy: Copy
    libraries: tuple[Library, ...]


def from_folder(
    folder: str,
    libraries: Sequence[Library],
    *,
    label: str,
    cuda: str | None = None,
    companions: Sequence[str] = (),
    version: str | None = None,
) -> Chosen:
    """The copy in a folder (of ``version``'s major where two lie there, else the newer one).

    Raises DoctorError where no shim is in it.
    """
    own = [lib for lib in libraries if posixpath.dirname(lib.path) == folder]
    named = [lib for lib in own if posixpath.basename(lib.path).startswith("libcudnn")]
    sonames = sorted({n for lib in named if _SONAME.fullmatch(n := posixpath.basename(lib.path))})
    shims = [name for name in sonames if name.startswith("libcudnn.so.")]
    if not shims:
        raise DoctorError(
            "no cuDNN that could be loaded is in this folder (libcudnn.so.N is missing)",
            where=folder,
            next_step="cudnn-doctor check lists the copies on this machine",
            exit_code=ExitCode.VERIFICATION_FAILED if named else ExitCode.BAD_INPUT,
        )
    wanted = f"libcudnn.so.{version.partition('.')[0]}" if version else ""
    shim = wanted if wanted in shims else shims[-1]
    major = shim.rpartition(".")[2]
    named = [lib for lib in named if _major(lib) in (int(major), None)]
    files = tuple(name for name in sonames if name.endswith(f".so.{major}"))
    versions = {lib.version for lib in named if lib.version and lib.version.startswith(major)}
    return Chosen(
        Copy(
            folder=folder,
            shim=shim,
            libraries=files,
            version=version or (versions.pop() if len(versions) == 1 else None),
            cuda=cuda,
            label=label,
            companions=tuple(companions),
        ),
        tuple(named),
    )


def _major(library: Library) -> int | None:
    """cuDNN major that a file's name tells, or for an unversioned link that of its target."""
    names = (posixpath.basename(path) for path in (library.path, library.real or ""))
    return next(
        (found.major for name in names if (found := parse_cudnn(name)) and found.major), None
    )


def from_plan(machine: Machine, plan: LoadPlan) -> Chosen:
    """The copy that a consumer would load; raises DoctorError where it would load none."""
    who = _who(plan)
    if plan.uses_cudnn is False:
        raise DoctorError(f"{who} does not use cuDNN", exit_code=ExitCode.CANNOT_TELL)
    if plan.shim is None or not plan.shim.path or not plan.folder:
        why = plan.shim.because if plan.shim else ""
        raise DoctorError(
            f"{who} would find no cuDNN",
            where=why,
            next_step="cudnn-doctor check",
            exit_code=ExitCode.CANNOT_TELL,
        )
    wanted = ("libcublas", "libnvrtc", "libnvJitLink")
    companions = [
        load.real for load in plan.companions if load.real and load.name.startswith(wanted)
    ]
    copy = next((c for c in machine.copies or () if c.folder == plan.folder), None)
    libraries = [_moved(lib, plan.folder) for lib in machine.libraries if _inside(lib, plan.folder)]
    return from_folder(
        plan.folder, libraries, label=who, companions=companions,
        cuda=copy.cuda if copy else None, version=copy.version if copy else None,
    )  # fmt: skip


def _who(plan: LoadPlan) -> str:
    consumer = plan.consumer
    if consumer.name == "dlopen":
        return "the loader's"
    return f"{consumer.name} {consumer.version}".strip()


def _inside(library: Library, folder: str) -> bool:
    return posixpath.dirname(library.path) == folder or (
        library.real is not None and posixpath.dirname(library.real) == folder
    )


def _moved(library: Library, folder: str) -> Library:
    """The same entry under its real folder, where it was met through a link to the folder."""
    if posixpath.dirname(library.path) == folder:
        return library
    import msgspec

    path = posixpath.join(folder, posixpath.basename(library.path))
    return msgspec.structs.replace(library, path=path)


def cublas_paths(copy: Copy, machine: Machine) -> tuple[str, ...]:
    """Where libcublas may be, for the GEMM rate: beside the copy, in toolkits, by its name."""
    major = copy.cuda or ""
    near = posixpath.dirname(posixpath.dirname(copy.folder))
    folders = [f"{near}/cublas/lib", f"{near}/cu{major}/lib"]
    folders += [posixpath.dirname(c) for c in copy.companions]
    folders += [f"{t.path}/lib64" for t in machine.toolkits or ()]
    names = [f"libcublas.so.{major}"] if major else [f"libcublas.so.{n}" for n in (13, 12, 11)]
    found = [posixpath.dirname(lib.path) for lib in machine.libraries
             if posixpath.basename(lib.path) in names]  # fmt: skip
    return tuple(dict.fromkeys([*(f"{f}/{n}" for f in (*folders, *found) for n in names), *names]))


def targets(
    gpus: Iterable[Gpu] | None, environ: Mapping[str, str], gpu: int | None, every: bool
) -> tuple[Target, ...]:
    """GPUs or MIG instances to work on.

    CUDA_VISIBLE_DEVICES is obeyed: its entries are what ``--gpu`` and ``--all-gpus`` choose from.
    An empty one leaves one target on which initialisation will say so. Raises DoctorError for an
    index that is not there.
    """
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        entries = [e.strip() for e in visible.split(",") if e.strip()]
        found = [Target(visible=e, label=f"CUDA device {e}") for e in entries]
        found = found or [Target(visible=visible, label="no visible GPU")]
    else:
        found = [t for one in gpus or () for t in _of_gpu(one)] or [Target()]
    if every:
        return tuple(found)
    index = gpu or 0
    if index >= len(found):
        raise DoctorError(
            f"there is no GPU {index}: {len(found)} can be used here", exit_code=ExitCode.USAGE
        )
    return (found[index],)


def _of_gpu(gpu: Gpu) -> list[Target]:
    if gpu.mig_enabled and gpu.mig_instances:
        return [
            Target(visible=m.uuid, label=f"GPU {gpu.index} MIG {m.profile}", uuid=m.uuid)
            for m in gpu.mig_instances
        ]
    label = f"GPU {gpu.index}" + (f" {gpu.name}" if gpu.name else "")
    return [Target(visible=gpu.uuid or str(gpu.index), label=label, uuid=gpu.uuid)]
