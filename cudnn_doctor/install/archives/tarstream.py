"""A tar archive read once, in order, while it arrives; members' bytes are not copied on the way."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import IO, Protocol, cast


class Pieces(Protocol):
    """Bytes in order: at least one and at most ``size`` a time; empty at the end."""

    def read(self, size: int, /) -> bytes | memoryview: ...


class Forward:
    """What tarfile asks of a file, for a source that only goes forward.

    tarfile reads headers through it and seeks over the members; ``take`` gives a member's bytes
    in between.
    """

    def __init__(self, source: Pieces) -> None:
        self._source = source
        self._position = 0

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> int:
        if position < self._position:
            raise tarfile.ReadError("its members are not in order")
        for _ in self.take(position - self._position):
            pass
        return self._position

    def read(self, size: int) -> bytes:
        return b"".join(self.take(size, whole=False))

    def take(self, size: int, *, whole: bool = True) -> Iterator[bytes | memoryview]:
        """The next ``size`` bytes in pieces; raises tarfile.ReadError where there are fewer, unless
        ``whole`` is False."""
        while size:
            data = self._source.read(size)
            if not data:
                if whole:
                    raise tarfile.ReadError("it ends in the middle")
                return
            self._position += len(data)
            size -= len(data)
            yield data


def members(stream: Forward) -> Iterator[tarfile.TarInfo]:
    """The archive's members in order; after each its bytes may be taken from the stream."""
    with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r:") as archive:
        yield from archive
