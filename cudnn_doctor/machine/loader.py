"""The loader simulated: which cuDNN each consumer of a `Machine` would get, file by file, and why.

Pure: works on snapshots and on descriptions by hand as well as on a probed machine. `trace` proves
the same in a child process.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

import msgspec

from cudnn_doctor.machine import opens
from cudnn_doctor.machine.assumed import Files, known_files, usual_binaries, usual_loader
from cudnn_doctor.machine.catalogue import SCHEMES, LoadingScheme
from cudnn_doctor.machine.consumers import (
    PLAIN,
    PROGRAM,
    companion_preloads,
    consumers,
    preloads,
    site_folder,
)
from cudnn_doctor.machine.ldso import Mapped, Process
from cudnn_doctor.machine.loads import Consumer, Load, LoadPlan
from cudnn_doctor.machine.model import CudnnCopy, Library, Machine
from cudnn_doctor.machine.names import parse_cudnn, soname
from cudnn_doctor.versions import CudnnVersion

__all__ = ["consumers", "simulate", "simulate_all"]

_PLAIN_SCHEME = LoadingScheme(True, "dlopen")


def simulate_all(
    machine: Machine,
    *,
    environ: Mapping[str, str] | None = None,
    files: Files | None = None,
) -> tuple[LoadPlan, ...]:
    """The plan of each of the machine's consumers, in their order; ``files`` are the machine's
    known files, for a caller who has worked them out."""
    files = files or known_files(machine)
    return tuple(_simulate(machine, c, environ, files) for c in consumers(machine))


def simulate(
    machine: Machine,
    consumer: Consumer,
    *,
    environ: Mapping[str, str] | None = None,
    files: Files | None = None,
) -> LoadPlan:
    """What one consumer would load; ``environ`` replaces the machine's environment variables."""
    return _simulate(machine, consumer, environ, files or known_files(machine))


def _simulate(
    machine: Machine, consumer: Consumer, environ: Mapping[str, str] | None, files: Files
) -> LoadPlan:
    scheme = _scheme(consumer)
    if scheme.uses_cudnn is False:
        return LoadPlan(consumer=consumer, uses_cudnn=False)
    run = _Run(machine, consumer, machine.environ if environ is None else environ, files)
    shim, here = run.open_shim()
    parts = run.open_parts(here) if here else ()
    companions = run.open_companions() if here else ()
    real = shim.real or shim.path
    return LoadPlan(
        consumer=consumer,
        uses_cudnn=scheme.uses_cudnn,
        shim=shim,
        sublibraries=parts,
        companions=companions,
        folder=posixpath.dirname(real) if real else None,
        certain=run.certain,
        notes=tuple(run.notes),
    )


def _scheme(consumer: Consumer) -> LoadingScheme:
    if consumer.scheme in {PLAIN, PROGRAM}:
        return _PLAIN_SCHEME
    return SCHEMES.get(consumer.scheme, SCHEMES["unknown"])


class _Run(msgspec.Struct, eq=False, dict=True):
    """One simulated process of one consumer."""

    machine: Machine
    consumer: Consumer
    environ: Mapping[str, str]
    files: Files
    certain: bool = True
    notes: list[str] = []
    parts: dict[str, Mapped] = {}

    def __post_init__(self) -> None:
        machine, consumer = self.machine, self.consumer
        self.site = site_folder(machine, consumer)
        known = self.files.known
        self.binaries = [known[p] for p in map(posixpath.normpath, consumer.binaries) if p in known]
        if not self.binaries:
            self._assume_binaries()
        if machine.loader.cache is None or not machine.loader.default_folders:
            self.doubt("the loader's cache and folders are not known: the usual ones are assumed")
        self.process = Process(
            files=self.files.known,
            config=usual_loader(machine),
            environ=self.environ,
            arch=machine.system.arch,
            program=self._program(),
        )

    def doubt(self, note: str) -> None:
        self.certain = False
        self.notes.append(note)

    def _assume_binaries(self) -> None:
        usual = usual_binaries(self.consumer, self.site)
        if usual:
            self.doubt(
                f"the files of {self.consumer.name} are not known: its usual build is assumed"
            )
        added = {posixpath.normpath(lib.path): lib for lib in usual}
        self.files = Files({**added, **self.files.known}, self.files.assumed | added.keys())
        self.binaries = usual[-1:]

    def _program(self) -> Mapped:
        """The main program: the environment's Python (conda's has an RPATH), or the named one."""
        if self.consumer.scheme == PROGRAM:
            return self._as_caller(self.binaries[0]) if self.binaries else Mapped("", "")
        for environment in self.machine.environments:
            if environment.prefix == self.consumer.environment and environment.executable:
                library = self.files.known.get(posixpath.normpath(environment.executable))
                if library is not None:
                    return Mapped.of(library, library.real or library.path, None)
        return Mapped("", "")

    @staticmethod
    def _as_caller(library: Library) -> Mapped:
        return Mapped.of(library, library.path, None)

    # -- the shim

    def open_shim(self) -> tuple[Load, Mapped | None]:
        """The load of libcudnn.so.N, by whatever way this consumer takes."""
        process = self.process
        process.preload(self.machine.loader.preload)
        process.preload(self.environ.get("LD_PRELOAD", "").replace(":", " ").split())
        scheme = _scheme(self.consumer)
        if scheme.preload == "always":
            early = self._preload()
            if early is not None:
                return early
        name = self._shim_name()
        if self.consumer.scheme == PROGRAM:
            process.map_needed(process.program)
        else:
            opened = [process.dlopen(lib.path)[1] is not None for lib in self.binaries]
            if scheme.preload == "fallback" and not all(opened):
                self._preload()
        here = process.under(name)
        if here is not None and here.load is not None:
            return here.load, here
        if name in process.failed:
            return process.failed[name], None
        load, here = process.dlopen_first(self._shim_names(name), self._asker())
        return msgspec.structs.replace(load, name=load.name or name), here

    def _preload(self) -> tuple[Load, Mapped] | None:
        failed = None
        for path in companion_preloads(self.consumer, self.site, self.process.files):
            self.process.dlopen(path)
        for name in preloads(self.consumer, self.site, self.process.files, self.environ):
            load, here = self.process.dlopen(name)
            if here is not None:
                because = f"opened by {self.consumer.name}'s own code: {load.because}"
                load = msgspec.structs.replace(load, because=because)
                load = msgspec.structs.replace(
                    load, via="preload" if load.via == "absolute" else load.via
                )
                here.load = load
                return load, here
            failed = failed or load.problem
        if failed:
            self.notes.append(f"{self.consumer.name} tried to preload cuDNN; the file {failed}")
        return None

    def _shim_name(self) -> str:
        """The name that the consumer's objects ask for."""
        for library in self.binaries:
            for name in library.needed:
                parsed = parse_cudnn(name)
                if parsed and not parsed.part:
                    return name
        if self.consumer.major is None:
            self.doubt("the cuDNN major that it wants is not known: the newest one is assumed")
        majors = [c.major for c in self.machine.copies or () if c.major is not None]
        return soname("", self.consumer.major or max(majors, default=9))

    def _shim_names(self, name: str) -> tuple[str, ...]:
        also = ("libcudnn.so",) if self.consumer.scheme == "cudnn-frontend-dlopen" else ()
        return (name, *also)

    def _asker(self) -> Mapped | None:
        """The object that opens the SONAME: the first that asks for it or has a search tag."""
        asking = [lib for lib in self.binaries if any("cudnn" in n for n in lib.needed)]
        tagged = [lib for lib in self.binaries if lib.rpath or lib.runpath]
        for library in (*asking, *tagged, *self.binaries):
            return self._as_caller(library)
        return None

    # -- the parts

    def open_parts(self, shim: Mapped) -> tuple[Load, ...]:
        """The sublibraries: those that the shim opens, then those that its graph library opens."""
        copy = self.copy_at(shim)
        self.parts[""] = shim
        loads = self._open_for(shim, "", copy)
        graph = self.parts.get("graph")
        if graph is not None:
            loads += self._open_for(graph, "graph", self.copy_at(graph))
        return tuple(loads)

    def _open_for(self, caller: Mapped, by: str, copy: CudnnCopy | None) -> list[Load]:
        release, exact = self._release(caller)
        if not exact:
            self.doubt(f"the release of {caller.path} is not known")
        loads = []
        for entry in opens.opened(release, by):
            if copy and copy.flavour == "jit" and entry.part not in opens.JIT_PARTS:
                continue
            names = opens.names_tried(entry.part, release, exact)
            load, here = self.process.dlopen_first(names, caller)
            if here is not None:
                self.parts[entry.part] = here
                if load.via == "already-mapped" and here.load is not None:
                    load = here.load
            loads.append(msgspec.structs.replace(load, name=soname(entry.part, release[0])))
        return loads

    def _release(self, here: Mapped) -> tuple[opens.Release, bool]:
        """Release of a mapped part, and whether all three of its numbers are known."""
        name = parse_cudnn(posixpath.basename(here.real)) or parse_cudnn(here.soname or "")
        copy = self.copy_at(here)
        told = (
            (here.library.version if here.library else None)
            or (name.version if name else None)
            or (copy.version if copy else None)
        )
        if told:
            try:
                return CudnnVersion.parse(told).release, True
            except ValueError:
                pass
        major = (name.major if name else None) or (copy.major if copy else None)
        return (major or self.consumer.major or 9, 0, 0), False

    def copy_at(self, here: Mapped) -> CudnnCopy | None:
        """The copy that a mapped file belongs to."""
        folders = {posixpath.dirname(here.real), posixpath.dirname(here.path)}
        name = parse_cudnn(posixpath.basename(here.path))
        major = name.major if name else None
        found = [c for c in self.machine.copies or () if c.folder in folders]
        return next(
            (c for c in found if major is None or c.major == major), next(iter(found), None)
        )

    # -- what the parts open besides

    def open_companions(self) -> tuple[Load, ...]:
        """cuBLAS, NVRTC, the driver and zlib, each as the part that opens it would get it."""
        cuda = self._cuda()
        loads: list[Load] = []
        for companion in opens.COMPANIONS:
            caller = next((self.parts[p] for p in companion.by if p in self.parts), None)
            name = opens.companion_soname(companion, cuda)
            if caller is None or name is None:
                continue
            release, _ = self._release(caller)
            if not companion.since <= release < companion.until:
                continue
            load, here = self.process.dlopen(name, caller)
            if load.via == "already-mapped" and here is not None and here.load is not None:
                load = here.load
            loads.append(self._companion(load))
            if name.startswith("libnvrtc.") and load.path:
                loads.append(self._companion(self._builtins(load)))
        return tuple(loads)

    def _companion(self, load: Load) -> Load:
        """In a description by hand, what nobody told is unknown and not missing."""
        if load.via == "missing" and self.machine.partial:
            because = "the description does not tell where CUDA's libraries are"
            return msgspec.structs.replace(load, via="unknown", because=because)
        return load

    def _builtins(self, nvrtc: Load) -> Load:
        """NVRTC opens its builtins by its own minor version, from its own folder first."""
        prefix = "libnvrtc-builtins.so"
        folders = {posixpath.dirname(p) for p in (nvrtc.path, nvrtc.real) if p}
        beside = [
            lib
            for path, lib in self.process.files.items()
            if posixpath.basename(path).startswith(prefix)
            and posixpath.dirname(path) in folders
            and lib.status not in {"dangling", "unreadable"}
        ]
        if not beside:
            return Load(name=prefix, via="missing", because=f"none beside {nvrtc.path}")
        best = max(beside, key=lambda lib: len(posixpath.basename(lib.path)))
        cut = "is truncated" if best.status == "truncated" else None
        because = f"beside {nvrtc.path}"
        return Load(
            name=prefix,
            path=best.path,
            real=best.real or best.path,
            via="runpath",
            because=because,
            problem=cut,
        )

    def _cuda(self) -> str | None:
        """CUDA major of the copy that is loaded."""
        for part in ("engines_precompiled", "ops_infer", "graph", ""):
            here = self.parts.get(part)
            copy = self.copy_at(here) if here else None
            if copy and copy.cuda:
                return copy.cuda.split(".")[0]
        cuda = (self.consumer.cuda or "").split(".")[0]
        if not cuda.isdigit():
            self.notes.append("the CUDA flavour of this copy is not known")
            return None
        return cuda
