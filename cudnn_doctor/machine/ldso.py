"""ld.so as a pure function of facts: which file a name resolves to in one process, and why.

Follows glibc (``elf/dl-load.c``, ``dlopen(3)``, ``ld.so(8)``): mapped names first; then DT_RPATH of
the asking object and of those that needed it (unless the asking object has DT_RUNPATH);
LD_LIBRARY_PATH; DT_RUNPATH of the asking object alone; ld.so.cache; default folders. A file of
another class or machine is passed over, a file that is no usable ELF ends the search with an error.
Names that are neither known files nor matter to cuDNN (`names.is_relevant`) are taken as found.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from cudnn_doctor.machine.loaderconfig import TRIPLETS
from cudnn_doctor.machine.loads import Load, Via
from cudnn_doctor.machine.model import Library, LoaderConfig
from cudnn_doctor.machine.names import is_relevant

_CLASS = {"i386": 32, "arm": 32, "ppc": 32}


class Tag(NamedTuple):
    """One DT_RPATH or DT_RUNPATH of one object."""

    name: str
    value: str
    path: str
    """The object that carries it."""

    @property
    def origin(self) -> str:
        return posixpath.dirname(self.path)


class Mapped(msgspec.Struct, eq=False):
    """An object in the process."""

    path: str
    real: str
    soname: str | None = None
    rpath: str | None = None
    runpath: str | None = None
    loader: Mapped | None = None
    library: Library | None = None
    load: Load | None = None
    """How it came in."""

    @classmethod
    def of(cls, library: Library, path: str, loader: Mapped | None) -> Mapped:
        real = library.real or path
        tags = (library.rpath, library.runpath)
        return cls(path, real, library.soname, *tags, loader, library)


class _Candidate(NamedTuple):
    path: str
    via: Via
    because: str


class Process(msgspec.Struct, eq=False):
    """A process that opens libraries, one call after the other."""

    files: Mapping[str, Library]
    """Every file that is known, by normalised path."""
    config: LoaderConfig
    environ: Mapping[str, str]
    arch: str | None = None
    program: Mapped = msgspec.field(default_factory=lambda: Mapped("", ""))
    mapped: list[Mapped] = []
    failed: dict[str, Load] = {}
    """Last failure of each name that could not be mapped."""
    _names: dict[str, Mapped] = {}
    _known: set[str] = set()

    def __post_init__(self) -> None:
        self._known = {posixpath.basename(path) for path in self.files}

    # -- opening

    def dlopen(self, name: str, caller: Mapped | None = None) -> tuple[Load, Mapped | None]:
        """Open one name as ``caller`` (None: the program): the object and what it needs."""
        kept = len(self.mapped), dict(self._names)
        load, here = self._map(name, caller or self.program, None)
        if here is not None and load.via != "already-mapped":
            lacking = self.map_needed(here)
            if lacking:
                del self.mapped[kept[0] :]
                self._names = kept[1]
                return _changed(load, problem=lacking), None
        return load, here

    def dlopen_first(
        self, names: Iterable[str], caller: Mapped | None = None
    ) -> tuple[Load, Mapped | None]:
        """Open the first name that can be opened; else the first failure that names a file."""
        tried: list[str] = []
        failed: Load | None = None
        last = Load(name="", via="missing")
        for name in names:
            last, here = self.dlopen(name, caller)
            if here is not None:
                return _changed(last, tried=(*tried, *last.tried)), here
            if failed is None and last.path:
                failed = last
            tried.append(name)
        return _changed(failed or last, tried=tuple(tried)), None

    def preload(self, names: Iterable[str]) -> list[Load]:
        """LD_PRELOAD and /etc/ld.so.preload: what cannot be loaded is passed over."""
        wanted = [n for n in names if is_relevant(posixpath.basename(n))]
        return [self.dlopen(name)[0] for name in wanted]

    def map_needed(self, first: Mapped) -> str:
        """Map DT_NEEDED entries breadth first; the sentence of the first that fails."""
        queue = [first]
        while queue:
            here = queue.pop(0)
            for name in here.library.needed if here.library else ():
                if name not in self._known and not is_relevant(name):
                    continue
                load, found = self._map(name, here, here)
                if found is None and not is_relevant(name):
                    continue
                if found is None:
                    what = load.problem or "is not found"
                    return f"{posixpath.basename(here.path)} needs {name}, which {what}"
                if load.via != "already-mapped":
                    queue.append(found)
        return ""

    def _map(self, name: str, caller: Mapped, loader: Mapped | None) -> tuple[Load, Mapped | None]:
        """Map one object without what it needs. ``loader`` hands its DT_RPATH on to it: for
        DT_NEEDED that is the caller, for dlopen nobody (measured on glibc 2.36)."""
        old = self._names.get(name)
        if old is not None:
            because = f"{old.path} is mapped already under this name"
            return self._load(name, old.path, "already-mapped", because, old.library), old
        tried: list[str] = []
        for candidate in self._candidates(name, caller):
            path = posixpath.normpath(candidate.path)
            library = self.files.get(path)
            if library is None or library.status in {"dangling", "unreadable"}:
                continue
            if self._foreign(library):
                tried.append(f"{path} ({library.machine or library.elf_class}, skipped)")
                continue
            load = self._load(name, path, candidate.via, candidate.because, library)
            load = _changed(load, tried=tuple(tried))
            if library.status in {"truncated", "not-elf"}:
                problem = "is truncated" if library.status == "truncated" else "is no ELF file"
                self.failed[name] = _changed(load, problem=problem)
                return self.failed[name], None
            return load, self._add(load, path, library, loader)
        absent = Load(name=name, via="missing", because=_nowhere(name), tried=tuple(tried))
        self.failed[name] = absent
        return absent, None

    def _add(self, load: Load, path: str, library: Library, loader: Mapped | None) -> Mapped:
        real = library.real or path
        here = next((m for m in self.mapped if m.real == real), None)
        if here is None:
            here = Mapped.of(library, path, loader)
            here.load = load
            self.mapped.append(here)
            for known in (path, library.soname):
                if known:
                    self._names.setdefault(known, here)
        self._names.setdefault(load.name, here)
        return here

    def under(self, name: str) -> Mapped | None:
        """The object that is mapped under a name."""
        return self._names.get(name)

    def _foreign(self, library: Library) -> bool:
        """Whether this process's ld.so passes the file over as another architecture's."""
        if self.arch is None:
            return False
        if library.machine is not None and library.machine != self.arch:
            return True
        return library.elf_class is not None and library.elf_class != _CLASS.get(self.arch, 64)

    def _load(self, name: str, path: str, via: Via, because: str, library: Library | None) -> Load:
        real = (library.real if library else None) or path
        version = library.version if library else None
        return Load(name=name, path=path, real=real, via=via, because=because, version=version)

    # -- searching

    def _candidates(self, name: str, caller: Mapped) -> Iterator[_Candidate]:
        if "/" in name:
            yield _Candidate(name, "absolute", f"opened as {name}")
            return
        if caller.runpath is None:
            yield from self._rpaths(name, caller)
        yield from self._from_environment(name)
        if caller.runpath is not None:
            yield from self._from_tag(name, Tag("RUNPATH", caller.runpath, caller.path), "runpath")
        for entry in self.config.cache or ():
            if entry.soname == name and (not entry.arch or entry.arch == (self.arch or entry.arch)):
                yield _Candidate(entry.path, "cache", f"ld.so.cache has {entry.path}")
                break
        for folder in self.config.default_folders:
            yield _Candidate(f"{folder}/{name}", "default", f"default folder {folder}")

    def _rpaths(self, name: str, caller: Mapped) -> Iterator[_Candidate]:
        """DT_RPATH of the caller, of its loaders, and of the program."""
        chain: list[Mapped] = []
        step: Mapped | None = caller
        while step is not None and step not in chain:
            chain.append(step)
            step = step.loader
        if self.program not in chain:
            chain.append(self.program)
        for here in chain:
            if here.rpath is not None and here.runpath is None:
                yield from self._from_tag(name, Tag("RPATH", here.rpath, here.path), "rpath")

    def _from_tag(self, name: str, tag: Tag, via: Via) -> Iterator[_Candidate]:
        for element in tag.value.split(":"):
            folder = self._expand(element, tag.origin)
            if folder is not None:
                because = f"{tag.name} {element} of {tag.path}"
                yield _Candidate(posixpath.join(folder, name), via, because)

    def _from_environment(self, name: str) -> Iterator[_Candidate]:
        value = self.environ.get("LD_LIBRARY_PATH", "")
        if not value:
            return
        for number, element in enumerate(value.replace(";", ":").split(":"), 1):
            folder = self._expand(element, posixpath.dirname(self.program.real))
            if folder is not None:
                shown = element or "empty: the working folder"
                because = f"LD_LIBRARY_PATH entry {number} ({shown})"
                yield _Candidate(posixpath.join(folder, name), "ld_library_path", because)

    def _expand(self, element: str, origin: str) -> str | None:
        """A search folder with its tokens replaced; None where a token has no value. An empty
        element is the working folder, and a relative one starts there."""
        folder = expand(element, origin, self.arch, self.config)
        if folder is None or folder.startswith("/") or element.startswith(("$ORIGIN", "${ORIGIN")):
            return folder
        here = self.environ.get("PWD")
        return posixpath.join(here, folder) if here else None


def expand(element: str, origin: str, arch: str | None, config: LoaderConfig) -> str | None:
    """Replace $ORIGIN, $LIB and $PLATFORM; None where one of them is not known."""
    if "$" not in element:
        return element
    triplet = TRIPLETS.get(arch or "", "")
    multiarch = bool(triplet) and any(f.endswith(triplet) for f in config.default_folders)
    lib = f"lib/{triplet}" if multiarch else "lib64"
    for token, value in (("ORIGIN", origin), ("LIB", lib), ("PLATFORM", arch or "")):
        for spelling in (f"${{{token}}}", f"${token}"):
            if spelling in element:
                if not value:
                    return None
                element = element.replace(spelling, value)
    return element


def _nowhere(name: str) -> str:
    return f"{name} cannot be opened" if "/" in name else f"no folder that is searched has {name}"


def _changed(load: Load, **changes: object) -> Load:
    import msgspec

    return msgspec.structs.replace(load, **changes)
