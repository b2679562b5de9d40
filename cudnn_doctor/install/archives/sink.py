"""The staging folder: takes members one by one and says no to what no honest archive holds.

Whatever the layout (``<name>-archive/lib``, ``cuda/lib64``, ``cuda/targets/*/lib`` or a wheel's
``nvidia/cudnn/lib``), the result is ``include/``, ``lib/`` and the licence. Refused: absolute
paths, ``..``, links that leave the folder, device nodes, names told twice, more data than the
archive can honestly hold. Modes are ours: setuid and write bits of others never come through.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from cudnn_doctor.install import manifest
from cudnn_doctor.install.plan import Unpack

_MAX_BYTES = 24 << 30
_MAX_RATIO = 40
"""cuDNN archives unpack to 2 to 4 times their size."""
_MAX_MEMBERS = 4096
_PIECES_BEHIND = 8
_LIBRARY = re.compile(r"(lib[\w-]+)\.so(\.\d+)*")


class _Digest:
    """A SHA-256 taken in a thread of its own, beside the writing and a few pieces behind it."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._pool = ThreadPoolExecutor(1)
        self._behind: deque[Future[None]] = deque()

    def __enter__(self) -> _Digest:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def update(self, data: bytes | memoryview) -> None:
        self._behind.append(self._pool.submit(self._hash.update, data))
        if len(self._behind) > _PIECES_BEHIND:
            self._behind.popleft().result()

    def hexdigest(self) -> str:
        """Of all that was given, once the ``with`` has ended."""
        return self._hash.hexdigest()


class Refused(Exception):
    """The archive holds something that an honest one does not."""


class Sink:
    """The staging folder: takes members one by one and says no to what it should not hold."""

    def __init__(self, folder: Path, step: Unpack) -> None:
        self.folder = folder
        self.step = step
        self.limit = (
            min(_MAX_BYTES, _MAX_RATIO * step.source.size) if step.source.size else _MAX_BYTES
        )
        self.expected = 0
        self.seen: set[str] = set()
        self.links: dict[str, str] = {}
        self.entries: dict[str, manifest.Entry] = {}

    def place(self, name: str) -> str | None:
        """Where a member goes in the normal layout, None when it is not wanted."""
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
            raise Refused(f"it holds a path that leads outside: {name!r}")
        whole = self.step.members == "all"
        place = "/".join(path.parts[1:]) if whole else self._normal(path)
        if not place:
            return None
        if place in self.seen:
            raise Refused(f"it holds {name!r} twice")
        self.seen.add(place)
        if len(self.seen) > _MAX_MEMBERS:
            raise Refused("it holds far more files than a cuDNN archive")
        return place

    def _normal(self, path: PurePosixPath) -> str | None:
        parts = list(path.parts)
        base = parts[-1] if parts else ""
        if base == "__init__.py":
            return None
        for index, part in enumerate(parts[:-1]):
            if part == "include":
                return "/".join(["include", *parts[index + 1 :]])
            if part in ("lib", "lib64") and index + 2 == len(parts):
                wanted = _LIBRARY.fullmatch(base) is not None
                if self.step.members == "static":
                    wanted = wanted or base.endswith(".a")
                return f"lib/{base}" if wanted else None
        licence = re.fullmatch(r"(LICENSE|License|NVIDIA_SLA.*)(\.txt)?", base)
        return "LICENSE" if licence and "LICENSE" not in self.seen else None

    def reserve(self, size: int) -> None:
        """Count a member that is going to be written, in bytes."""
        self.expected += size
        if self.expected > self.limit:
            raise Refused("it unpacks to far more than a cuDNN archive holds")

    def write(self, place: str, pieces: Iterable[bytes | memoryview]) -> None:
        """Write a member's bytes into its place and take their hash. Several threads may."""
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        mode = 0o755 if ".so" in path.name else 0o644
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        size = 0
        with _Digest() as digest, os.fdopen(os.open(path, flags, mode), "wb") as file:
            for data in pieces:
                digest.update(data)
                file.write(data)
                size += len(data)
        self.entries[place] = manifest.Entry(size=size, sha256=digest.hexdigest())

    def link(self, place: str, target: str) -> None:
        """Remember a link; it is made when all files are there."""
        if place.startswith("lib/") and "/" in target:
            # Old layouts link across folders; after normalising all libraries share one.
            target = self._sibling(place, target)
        self.links[place] = target

    @staticmethod
    def _sibling(place: str, target: str) -> str:
        if target.startswith("/") or os.path.normpath(f"{place}/../{target}").startswith(".."):
            raise Refused(f"the link {place!r} leads outside, to {target!r}")
        return target.rpartition("/")[2]

    def finish(self) -> None:
        """Make the links, archive's own first, then those that a build expects."""
        for place, target in self.links.items():
            self._make_link(place, target)
        library_folder = self.folder / "lib"
        names = sorted(p.name for p in library_folder.iterdir()) if library_folder.is_dir() else []
        if not any(name.startswith("libcudnn.so.") for name in names):
            raise Refused("it holds no libcudnn.so")
        if self.step.links:
            complete_links(library_folder)
        manifest.write(self.folder, self.entries)

    def _make_link(self, place: str, target: str) -> None:
        inside = os.path.normpath(os.path.join(os.path.dirname(place), target))
        if target.startswith("/") or inside.startswith(".."):
            raise Refused(f"the link {place!r} leads outside, to {target!r}")
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        os.symlink(target, path)
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise Refused(f"the link {place!r} leads outside, to {target!r}")


def complete_links(folder: Path) -> None:
    """``libX.so -> libX.so.9 -> libX.so.9.10.2``, where a file of a longer name is there."""
    for name in sorted(path.name for path in folder.iterdir()):
        match = _LIBRARY.fullmatch(name)
        if match is None or match[2] is None:
            continue
        stem, digits = match[1], name[len(match[1]) + 4 :].split(".")
        chain = [f"{stem}.so", f"{stem}.so.{digits[0]}", name]
        for link, target in itertools.pairwise(chain):
            if link != target and not os.path.lexists(folder / link):
                os.symlink(target, folder / link)
