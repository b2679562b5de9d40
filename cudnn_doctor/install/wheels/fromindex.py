"""Fill a prefix with the contents of a wheel that the user's own uv or pip fetches.

So index configuration, proxies, netrc, certificates and caches are the ones that work here
already, and a wheel is unpacked several times faster than NVIDIA's archive.
"""

from __future__ import annotations

import base64
import csv
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cudnn_doctor.errors import NothingChanged
from cudnn_doctor.install import files, folders, manifest
from cudnn_doctor.install.archives.sink import complete_links
from cudnn_doctor.install.plan import FromIndex
from cudnn_doctor.install.state import held
from cudnn_doctor.install.wheels.pins import hashed
from cudnn_doctor.interpreter import apart
from cudnn_doctor.matrix.model import Wheel

_GLIBC_MINORS = range(17, 29)
"""Wheels of CUDA libraries ask for glibc 2.17 to 2.28."""


def installer() -> tuple[str, ...] | None:
    """The command before ``install``: uv's if there is one, else a pip; None without either."""
    return ("uv", "pip") if shutil.which("uv") else _pip()


def is_uv(command: tuple[str, ...]) -> bool:
    """Whether that command is uv's."""
    return command[0] == "uv"


def _pip() -> tuple[str, ...] | None:
    for name in ("pip3", "pip"):
        if shutil.which(name):
            return (name,)
    argv = (sys.executable, "-m", "pip")
    done = subprocess.run((*apart(argv), "--version"), check=False, capture_output=True)
    return argv if done.returncode == 0 else None


def step_for(wheel: Wheel, staging: str, command: tuple[str, ...]) -> FromIndex:
    """The step that puts a wheel's contents into ``staging``, whatever this machine's own
    architecture and Python are."""
    argv = [
        *command,
        "install",
        "-q",
        "--target",
        f"{staging}.index",
        "--no-deps",
        "--require-hashes",
    ]
    if is_uv(command):
        argv += ["--python-platform", uv_platform(wheel.arch), "--no-build"]
        argv += ["--python", sys.executable]
    else:
        argv += [*_for_tags(_tags(wheel)), "--no-compile"]
    return FromIndex(
        title=f"fetch {wheel.package} {wheel.version} with {os.path.basename(command[0])}",
        argv=(*argv, "-r", "/dev/stdin"),
        requirement=hashed(wheel),
        staging=staging,
    )


def _tags(wheel: Wheel) -> list[str]:
    return wheel.file.removesuffix(".whl").split("-")[-1].split(".")


def uv_platform(arch: str) -> str:
    """What uv's ``--python-platform`` calls a machine, whatever this one is."""
    return f"{arch}-manylinux_2_{_GLIBC_MINORS[-1]}"


def pip_platform(arch: str) -> list[str]:
    """pip's options for wheels for a machine, whatever this one is."""
    tags = [f"manylinux_2_{minor}_{arch}" for minor in _GLIBC_MINORS]
    return _for_tags([*tags, f"manylinux2014_{arch}"])


def _for_tags(tags: Sequence[str]) -> list[str]:
    options = ["--only-binary=:all:", "--disable-pip-version-check"]
    return [*(f"--platform={tag}" for tag in tags), *options]


def download(wheel: Wheel, folder: str) -> Path:
    """Let pip (or uv's) fetch a wheel into a folder; returns its path.

    Raises DoctorError (NOTHING_CHANGED) with what it said.
    """
    _download([hashed(wheel)], _for_tags(_tags(wheel)), folder)
    return Path(folder, wheel.file)


def download_lines(lines: Sequence[str], arch: str, folder: str) -> None:
    """The same for lines of a requirements file that carry hashes."""
    _download(lines, pip_platform(arch), folder)


def _download(lines: Sequence[str], platform: Sequence[str], folder: str) -> None:
    uvx = shutil.which("uvx")
    command = _pip() or ((uvx, "pip") if uvx else None)
    if command is None:
        raise NothingChanged(
            "neither pip nor uv is here to fetch a wheel",
            next_step="install one, or use --source archive",
        )
    argv = [*command, "download", "--no-deps", "--require-hashes", "--dest", folder]
    _run((*argv, *platform, "-r", "/dev/stdin"), "\n".join(lines))


def fill(step: FromIndex) -> None:
    """Do the step; raises DoctorError (NOTHING_CHANGED) with what the program said.

    At a terminal the program shows its own progress.
    """
    _run(step.argv, step.requirement)
    try:
        _lay_out(Path(f"{step.staging}.index"), Path(step.staging))
    except StopIteration:
        raise NothingChanged(
            "the wheel holds no libcudnn.so",
            where=step.requirement.split(maxsplit=1)[0],
            next_step="use --source archive",
        ) from None
    except OSError as error:
        raise files.failed("cannot lay out the wheel's files", step.staging, error) from error


def _run(argv: tuple[str, ...], requirement: str) -> None:
    seen = sys.stderr.isatty()
    done = subprocess.run(
        apart(argv),
        input=f"{requirement}\n".encode(),
        stdout=sys.stderr if seen else subprocess.PIPE,
        stderr=None if seen else subprocess.STDOUT,
        env={**os.environ, "LC_ALL": "C"},
        pass_fds=held(),
        check=False,
    )
    if done.returncode:
        tail = (done.stdout or b"").decode("utf-8", "replace").strip().splitlines()[-15:]
        raise NothingChanged(
            "\n".join([f"{os.path.basename(argv[0])} could not fetch the wheel", *tail]),
            where=requirement.split(maxsplit=1)[0],
            next_step="mend its index, proxy or certificates; or use --source archive; "
            "or bring the wheel with --archive FILE",
        )


def _lay_out(index: Path, staging: Path) -> None:
    """``nvidia/cudnn`` (or ``nvidia/cudnn_jit``) becomes the version's folder."""
    home = next(path.parent.parent for path in sorted(index.glob("nvidia/*/lib/libcudnn.so.*")))
    staging.mkdir(mode=0o755)
    for name in ("include", "lib"):
        (home / name).rename(staging / name)
        folders.discard(str(staging / name / "__init__.py"))
    for licence in sorted(index.glob("*.dist-info/**/License.txt"))[:1]:
        licence.rename(staging / "LICENSE")
    complete_links(staging / "lib")
    if os.geteuid() == 0:  # uv links files from its cache, which keep the mode they got there
        folders.open_to_readers(str(staging))
    manifest.write(staging, _recorded(index, home, staging))
    shutil.rmtree(index)


def _recorded(index: Path, home: Path, staging: Path) -> dict[str, manifest.Entry]:
    """What the wheel's RECORD says of the files, where the size on disk is that: the hash of the
    whole wheel was checked, so that none needs to be read again."""
    found = {}
    for record in index.glob("*.dist-info/RECORD"):
        for row in csv.reader(record.read_text("utf-8").splitlines()):
            path, kind, _, text = row[0], *row[1].partition("=")
            place = os.path.relpath(index / path, home)
            file = staging / place
            if kind != "sha256" or not file.is_file() or str(file.stat().st_size) != row[2]:
                continue
            digest = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).hex()
            found[place] = manifest.Entry(size=int(row[2]), sha256=digest)
    return found
