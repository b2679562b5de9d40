"""Archives are hostile until proved otherwise: each trick is refused and nothing is left behind."""

from __future__ import annotations

import hashlib
import io
import lzma
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support import redist

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install import executor
from cudnn_doctor.install.plan import Fetch, MakeFolder, Plan, Unpack
from cudnn_doctor.install.progress import Silent
from cudnn_doctor.install.state import State

TOP = "cudnn-linux-x86_64-9.9.9.9_cuda12-archive"
Fill = Callable[[tarfile.TarFile], None]


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> Fill:
    def fill(tar: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.mode = kind, link, mode
        tar.addfile(info)

    return fill


def twice(tar: tarfile.TarFile) -> None:
    redist.add_file(tar, f"{TOP}/include/cudnn.h", b"one")
    redist.add_file(tar, f"{TOP}/include/cudnn.h", b"two")


def through_a_link(tar: tarfile.TarFile) -> None:
    redist.add_link(tar, f"{TOP}/include/sub", "../../..")
    redist.add_file(tar, f"{TOP}/include/sub/escaped", b"x")


def chain_of_links(tar: tarfile.TarFile) -> None:
    redist.add_link(tar, f"{TOP}/include/a", ".")
    redist.add_link(tar, f"{TOP}/include/b", "a/../..")
    redist.add_link(tar, f"{TOP}/include/c", "b/../../../../etc/passwd")


def bomb(tar: tarfile.TarFile) -> None:
    info = tarfile.TarInfo(f"{TOP}/include/zeros.h")
    info.size = 60 << 20
    tar.addfile(info, io.BytesIO(bytes(info.size)))


def crowd(tar: tarfile.TarFile) -> None:
    for number in range(5000):
        redist.add_file(tar, f"{TOP}/include/{number}.h", b"")


TRICKS: dict[str, tuple[Fill, str]] = {
    "absolute path": (member("/etc/cron.d/include/evil"), "leads outside"),
    "parent folder": (member(f"{TOP}/include/../../../evil"), "leads outside"),
    "backslash": (member(f"{TOP}/include/..\\evil"), "leads outside"),
    "link outside": (member(f"{TOP}/lib/libcudnn.so", tarfile.SYMTYPE, "/etc/passwd"), "outside"),
    "link upwards": (member(f"{TOP}/include/x", tarfile.SYMTYPE, "../../../x"), "outside"),
    "lib link upwards": (member(f"{TOP}/lib/libx.so", tarfile.SYMTYPE, "../../../libx.so"), "out"),
    "through a link": (through_a_link, "outside|Not a directory|File exists"),
    "chain of links": (chain_of_links, "outside"),
    "hard link": (member(f"{TOP}/include/x", tarfile.LNKTYPE, "/etc/shadow"), "neither a file"),
    "device": (member(f"{TOP}/include/sda", tarfile.BLKTYPE), "neither a file"),
    "character device": (member(f"{TOP}/include/null", tarfile.CHRTYPE), "neither a file"),
    "pipe": (member(f"{TOP}/include/pipe", tarfile.FIFOTYPE), "neither a file"),
    "twice": (twice, "twice"),
    "bomb": (bomb, "far more than"),
    "crowd": (crowd, "far more files"),
    "no cuDNN": (member(f"{TOP}/include/x.h"), "no libcudnn.so"),
}


def attempt(tmp_path: Path, archive: Path) -> Path:
    """Unpack as a plan does; returns the staging folder."""
    base = tmp_path / "target"
    base.mkdir()
    fetch = Fetch(
        urls=(archive.as_uri(),),
        sha256=hashlib.sha256(archive.read_bytes()).hexdigest(),
        size=archive.stat().st_size,
        name=archive.name,
    )
    staging = base / "prefix" / ".staging"
    steps = (MakeFolder(path=str(base / "prefix")), Unpack(source=fetch, staging=str(staging)))
    plan = Plan(
        action="install", method="tarball", version="9.9.9.9", cuda="12", target="x", steps=steps
    )
    executor.execute(plan, State(tmp_path / "state", tmp_path / "cache"), Silent())
    return staging


def packed(tmp_path: Path, *fills: Fill) -> Path:
    path = tmp_path / f"{TOP}.tar.xz"
    with tarfile.open(path, "w:xz", preset=0) as tar:
        for fill in fills:
            fill(tar)
    return path


def refused(tmp_path: Path, archive: Path, says: str) -> None:
    with pytest.raises(DoctorError, match=says) as caught:
        attempt(tmp_path, archive)
    assert caught.value.exit_code == ExitCode.NOTHING_CHANGED
    assert list((tmp_path / "target").rglob("*")) == []
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("trick", TRICKS)
def test_it_is_refused(tmp_path: Path, trick: str) -> None:
    fill, says = TRICKS[trick]
    honest = () if trick == "no cuDNN" else (member(f"{TOP}/lib/libcudnn.so.9"),)
    refused(tmp_path, packed(tmp_path, *honest, fill), says)


def test_modes_of_others_never_come_through(tmp_path: Path) -> None:
    fills = (
        member(f"{TOP}/lib/libcudnn.so.9", mode=0o6777),
        member(f"{TOP}/include/cudnn.h", mode=0o4777),
    )
    staging = attempt(tmp_path, packed(tmp_path, *fills))
    for path in (p for p in staging.rglob("*") if p.is_file()):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert not mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWGRP | stat.S_IWOTH)


@pytest.mark.parametrize("at", [0.2, 0.6, 0.98])
def test_a_corrupt_xz_is_told(tmp_path: Path, at: float) -> None:
    archive = redist.build_archive(tmp_path / "redist", "9.10.2.21", blocks=at > 0.5)
    data = bytearray(archive.read_bytes())
    data[int(len(data) * at)] ^= 0xFF
    archive.write_bytes(data)
    refused(tmp_path, archive, "cannot unpack")


def test_a_truncated_xz_is_told(tmp_path: Path) -> None:
    archive = redist.build_archive(tmp_path / "redist", "9.10.2.21")
    archive.write_bytes(archive.read_bytes()[:-3000])
    refused(tmp_path, archive, "ends in the middle|unexpected end")


def test_something_else_than_an_archive_is_told(tmp_path: Path) -> None:
    path = tmp_path / f"{TOP}.tar.xz"
    path.write_bytes(b"<html>Please log in</html>" * 10)
    refused(tmp_path, path, "cannot unpack")
    path.write_bytes(lzma.compress(b"no tar" * 1000))
    (tmp_path / "target").rmdir()
    refused(tmp_path, path, "cannot unpack")


@pytest.mark.parametrize("name", ["/etc/include/evil", "nvidia/cudnn/include/../../../../evil"])
def test_a_hostile_wheel_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "nvidia_cudnn_cu12-9.9.9.9-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("nvidia/cudnn/lib/libcudnn.so.9", b"x")
        archive.writestr(name, b"x")
    refused(tmp_path, path, "leads outside")


def test_a_link_or_bomb_in_a_wheel_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "nvidia_cudnn_cu12-9.9.9.9-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        link = zipfile.ZipInfo("nvidia/cudnn/lib/libcudnn.so.9")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    refused(tmp_path, path, "not a plain file")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("nvidia/cudnn/lib/libcudnn.so.9", bytes(60 << 20))
    (tmp_path / "target").rmdir()
    refused(tmp_path, path, "far more than")


class OneWay(io.RawIOBase):
    """A stream that cannot go back: zip's sizes then follow the members."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("wb")

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        return self.file.write(data)  # type: ignore[arg-type]

    def close(self) -> None:
        self.file.close()
        super().close()


def test_a_wheel_whose_headers_tell_no_sizes_is_unpacked_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "nvidia_cudnn_cu12-9.9.9.9-py3-none-any.whl"
    with (
        OneWay(path) as raw,
        zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive,  # type: ignore[arg-type]
    ):
        archive.writestr("nvidia/cudnn/lib/libcudnn.so.9", b"x" * 5000)
        archive.writestr("nvidia/cudnn/include/cudnn.h", b"y" * 5000)
    staging = attempt(tmp_path, path)
    assert (staging / "lib/libcudnn.so.9").read_bytes() == b"x" * 5000
    assert (staging / "include/cudnn.h").read_bytes() == b"y" * 5000


def test_a_member_that_the_directory_does_not_list_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "nvidia_cudnn_cu12-9.9.9.9-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("nvidia/cudnn/lib/libcudnn.so.9", b"x")
        archive.writestr("nvidia/cudnn/include/evil.h", b"x")
        archive.filelist.pop()
    refused(tmp_path, path, "does not list")


@pytest.mark.parametrize("at", [18, 22], ids=["packed size", "size"])
def test_headers_that_lie_about_sizes_are_refused(tmp_path: Path, at: int) -> None:
    path = tmp_path / "nvidia_cudnn_cu12-9.9.9.9-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("nvidia/cudnn/lib/libcudnn.so.9", b"x" * 9000)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    refused(tmp_path, path, "cannot unpack")
