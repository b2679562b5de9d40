"""The library files that matter, in every folder that matters, with what their ELF headers say.

Nothing is loaded. A version comes from the file's own version symbol, the wheel whose RECORD has
the file and its size, or the real file's name; otherwise it stays unknown (`trace.ask_version` asks
the library in a child).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from cudnn_doctor.machine.distributions import read_distributions
from cudnn_doctor.machine.elf import Elf, exported_bytes, read_elf
from cudnn_doctor.machine.folders import library_folders
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.ldso import expand
from cudnn_doctor.machine.model import (
    Distribution,
    Environment,
    Framework,
    Library,
    LoaderConfig,
    Toolkit,
)
from cudnn_doctor.machine.names import is_relevant, parse_cudnn
from cudnn_doctor.machine.records import Comparer

_NUMBERED = re.compile(r"\.so\.(\d+(?:\.\d+){2,})$")
_WHEEL_FOLDER = re.compile(r"(/.+)/nvidia/cudnn[^/]*/lib/*")
_MAX_TAG_FOLDERS = 2000
_VERSION_SYMBOLS = {
    "graph": "cudnn_graph_version",
    "ops": "cudnn_ops_infer_version",
    "adv": "cudnn_adv_infer_version",
    "ops_infer": "cudnn_ops_infer_version",
    "ops_train": "cudnn_ops_train_version",
    "cnn_infer": "cudnn_cnn_infer_version",
    "adv_infer": "cudnn_adv_infer_version",
}
"""Part -> the data symbol in which it tells its release."""


def probe_libraries(
    host: Host,
    environments: Sequence[Environment],
    frameworks: Sequence[Framework],
    toolkits: Sequence[Toolkit],
    loader: LoaderConfig,
    *,
    deep: bool = False,
) -> tuple[Library, ...]:
    """All relevant library files and links, in the order of their folders, each path once."""
    folders = library_folders(host, environments, frameworks, toolkits, loader, deep=deep)
    known = [d for environment in environments for d in environment.distributions]
    reader = _Reader(host, _wheel_versions([*known, *_loose_wheels(host, environments)]))
    for folder in folders:
        reader.read_folder(folder)
    for framework in frameworks:
        for path in framework.binaries:
            reader.read_file(path)
    for environment in environments:
        if environment.kind == "conda" and environment.executable:
            reader.read_file(environment.executable)
    for folder in _tagged_folders(reader.found.values(), loader):
        reader.read_folder(folder)
    return tuple(reader.found.values())


def read_program(host: Host, path: str, loader: LoaderConfig) -> tuple[Library, ...]:
    """A native program or library, with what lies in the folders that its search tags and its
    $ORIGIN in LD_LIBRARY_PATH name, as far as it matters or the program needs it."""
    reader = _Reader(host, {})
    reader.read_file(path)
    program = reader.found.get(posixpath.normpath(path))
    if program is None:
        return ()
    origin = posixpath.dirname(program.real or path)
    searched = [
        expand(element, origin, program.machine, loader) or ""
        for element in host.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":")
        if "$" in element
    ]
    tagged = _tagged_folders(reader.found.values(), loader)
    for folder in (posixpath.dirname(path), *tagged, *searched):
        reader.read_folder(folder, every=program.needed)
    return tuple(reader.found.values())


class _Reader(msgspec.Struct, eq=False):
    """Reads each real file once, however many names lead to it."""

    host: Host
    versions: dict[str, str]
    """Version by path, from wheels."""
    found: dict[str, Library] = {}
    _elves: dict[str, Elf] = {}
    _listed: dict[str, list[str]] = {}
    _seen: set[str] = set()

    def read_folder(self, folder: str, every: Iterable[str] = ()) -> None:
        """Take in the relevant names of a folder, and those named by ``every``."""
        folder = posixpath.normpath(folder)
        if folder in self._seen:
            return
        self._seen.add(folder)
        real = self.host.real(folder)
        if real is None:
            return
        names = self._listed.get(real)
        if names is None:
            names = self._listed[real] = self.host.names(real)
        wanted = set(every)
        for name in names:
            if is_relevant(name) or name in wanted:
                self._take(folder, real, name)

    def read_file(self, path: str) -> None:
        """Take in one file by its path."""
        folder, name = posixpath.split(posixpath.normpath(path))
        real = self.host.real(folder)
        if real is not None and self.host.lstat(path) is not None:
            self._take(folder, real, name)

    def _take(self, folder: str, real_folder: str, name: str) -> None:
        path = posixpath.join(folder, name)
        if path in self.found:
            return
        link = self.host.link(f"{real_folder}/{name}")
        real = f"{real_folder}/{name}" if link is None else self.host.real(path)
        if real is None:
            self.found[path] = Library(path=path, link=link, status="dangling")
            return
        elf = self._elves.get(real)
        if elf is None:
            elf = self._elves[real] = read_elf(self.host.outer(real))
        version, source = self._version(path, real)
        self.found[path] = Library(
            path=path,
            link=link,
            real=real,
            size=elf.size,
            status=elf.status,
            machine=elf.machine,
            elf_class=elf.elf_class,
            soname=elf.soname,
            needed=elf.needed,
            rpath=elf.rpath,
            runpath=elf.runpath,
            version=version,
            version_from=source,
            glibc_needed=elf.glibc_needed,
        )

    def _version(self, path: str, real: str) -> tuple[str | None, str]:
        name = posixpath.basename(real)
        cudnn = parse_cudnn(name)
        own = own_version(self.host.outer(real), cudnn.part) if cudnn is not None else None
        told = self.versions.get(path) or self.versions.get(real)
        if told and (own is None or told.startswith(f"{own}.")):
            return told, "wheel"
        if own:
            return own, "file"
        if cudnn is not None and cudnn.version:
            return cudnn.version, "file name"
        match = None if "libcudnn" in path else _NUMBERED.search(name)
        return (match[1], "file name") if match else (None, "")


def own_version(path: str, part: str) -> str | None:
    """The release that a cuDNN file itself tells, without running anything.

    graph, ops and adv (9), ops_infer, ops_train, cnn_infer and adv_infer (8) export a data symbol
    of four bytes: patch, minor, major, 0. Measured on the x86_64 wheels of 8.9.7, 9.1.0, 9.8.0,
    9.12.0 and 9.24.0.
    """
    symbol = _VERSION_SYMBOLS.get(part)
    data = exported_bytes(path, symbol, 4) if symbol else None
    if data is None or data[3] or not data[2]:
        return None
    return f"{data[2]}.{data[1]}.{data[0]}"


def _loose_wheels(host: Host, environments: Sequence[Environment]) -> Iterator[Distribution]:
    """Wheels that LD_LIBRARY_PATH leads into and that are in no known environment."""
    known = {site for environment in environments for site in environment.site_packages}
    searched = host.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":")
    sites = [match[1] for folder in searched if (match := _WHEEL_FOLDER.fullmatch(folder))]
    for site in dict.fromkeys(sites):
        if site not in known and host.real(site) not in known:
            yield from read_distributions(host, site, Comparer(host))


def _wheel_versions(distributions: Iterable[Distribution]) -> dict[str, str]:
    """Version of each cuDNN file that exactly one wheel records as it is on the disk."""
    claims: dict[str, set[str]] = {}
    for distribution in distributions:
        if "cudnn" not in distribution.name or distribution.installer == "conda":
            continue
        changed = {problem.path for problem in distribution.record_problems}
        for file in distribution.files:
            if parse_cudnn(posixpath.basename(file)) and file not in changed:
                path = posixpath.normpath(f"{distribution.location}/{file}")
                claims.setdefault(path, set()).add(distribution.version)
    return {path: found.pop() for path, found in claims.items() if len(found) == 1}


def _tagged_folders(libraries: Iterable[Library], loader: LoaderConfig) -> Iterator[str]:
    """Folders that the search tags of the files found so far name."""
    pairs = dict.fromkeys(
        (element, posixpath.dirname(library.path), library.machine)
        for library in list(libraries)
        for tag in (library.rpath, library.runpath)
        if tag
        for element in tag.split(":")
    )
    for element, origin, machine in list(pairs)[:_MAX_TAG_FOLDERS]:
        folder = expand(element, origin, machine, loader)
        if folder and folder.startswith("/"):
            yield posixpath.normpath(folder)
