"""The space that uv or pip takes for wheels: its cache, its temporary files and the environment."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping

from cudnn_doctor.install.archives.unpack import free_space_for
from cudnn_doctor.install.folders import nearest
from cudnn_doctor.install.plan import Run
from cudnn_doctor.install.wheels.environment import Installer
from cudnn_doctor.install.wheels.pins import name_of
from cudnn_doctor.interpreter import apart

_TYPICAL = {"nvidia-cublas": 600_000_000, "nvidia-cuda-nvrtc": 90_000_000}
"""Bytes of the companions' wheels where the index told none: what those of CUDA 12 have."""


def space_for(
    runs: Iterable[Run], sizes: Mapping[str, int], site: str, installer: Installer
) -> dict[str, int]:
    """Folder -> bytes to have free for what the commands bring; ``sizes`` are those of wheels."""
    names = {name_of(line) for run in runs for line in run.stdin.splitlines()}
    total = sum(sizes.get(name) or _typical(name) for name in names)
    return space_of(total, site, installer.command, is_uv=installer.is_uv)


def space_of(total: int, site: str, command: tuple[str, ...], *, is_uv: bool) -> dict[str, int]:
    """Folder -> bytes to have free for wheels of so many bytes, installed into ``site``.

    uv unpacks into its cache and, on the same file system, links from there. pip downloads into
    its cache and TMPDIR, and unpacks into the environment.
    """
    if not total:
        return {}
    unpacked, temporary = free_space_for(total), tempfile.gettempdir()
    cache = _cache(command[:1] if is_uv else command)
    if not is_uv:
        return _summed((site, unpacked), (temporary, total), (cache, total))
    cache = cache or temporary
    copies = os.environ.get("UV_LINK_MODE") == "copy" or _device(cache) != _device(site)
    return _summed((cache, unpacked), (site if copies else "", unpacked))


def _typical(name: str) -> int:
    return next((size for stem, size in _TYPICAL.items() if name.startswith(stem)), 0)


def _cache(command: tuple[str, ...]) -> str:
    """The installer's cache folder as it tells it; empty where it is switched off."""
    argv = (*apart(command), "cache", "dir")
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _summed(*needs: tuple[str, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for folder, size in needs:
        if folder:
            found[folder] = found.get(folder, 0) + size
    return found


def _device(folder: str) -> int:
    """The file system on which ``folder`` is or will be."""
    return os.stat(nearest(folder)).st_dev
