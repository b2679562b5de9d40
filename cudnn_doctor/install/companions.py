"""Exact cuBLAS and NVRTC wheels for a lock file: versions and hashes as the index has them now."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence

import msgspec

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install import environment as environments
from cudnn_doctor.install.environment import Installer
from cudnn_doctor.install.request import InstallRequest
from cudnn_doctor.install.wheel import companion_requirements
from cudnn_doctor.machine.model import Machine

_LINE = re.compile(r"[\w.-]+==\S+( --hash=sha256:[0-9a-f]{64})+")


def pin(request: InstallRequest, machine: Machine) -> InstallRequest:
    """The request with its companions pinned, those of the environment in their versions.

    Raises DoctorError (NOTHING_CHANGED) when the installer cannot resolve them or the index tells
    no hashes.
    """
    environment = environments.choose(request.python, machine)
    installer = environments.installer_for(environment)
    wanted = companion_requirements(request, environment)
    lines = _by_uv(installer, wanted) if installer.is_uv else _by_pip(installer, wanted)
    for line in lines:
        if not _LINE.fullmatch(line):
            raise _failed(f"the index tells no SHA-256 of {line.split(maxsplit=1)[0]}", "")
    return msgspec.structs.replace(request, companions=tuple(sorted(lines)))


def _by_uv(installer: Installer, wanted: Sequence[str]) -> list[str]:
    argv = [*installer.command, "compile", "--generate-hashes", "--no-header", "--no-annotate"]
    text = _answer([*argv, "-q", "--python", installer.python, "-"], wanted)
    text = re.sub(r"\s*\\\n\s*", " ", text)
    return [line.strip() for line in text.splitlines() if "==" in line]


def _by_pip(installer: Installer, wanted: Sequence[str]) -> list[str]:
    argv = [*installer.command, "install", "--dry-run", "--ignore-installed", "-q"]
    text = _answer([*argv, "--report", "-", "-r", "/dev/stdin"], wanted)
    lines = []
    for item in msgspec.json.decode(text)["install"]:
        told = item["metadata"]
        digest = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256", "")
        lines.append(f"{told['name']}=={told['version']} --hash=sha256:{digest}")
    return lines


def _answer(argv: Sequence[str], wanted: Sequence[str]) -> str:
    done = subprocess.run(
        argv,
        input="".join(f"{line}\n" for line in wanted),
        stdout=subprocess.PIPE,
        stderr=None if sys.stderr.isatty() else subprocess.PIPE,
        env={**os.environ, "LC_ALL": "C"},
        text=True,
        check=False,
    )
    if done.returncode:
        tail = "\n".join((done.stderr or "").strip().splitlines()[-12:])
        raise _failed(f"cannot resolve {', '.join(wanted)} for the lock:\n{tail}".strip(), argv[0])
    return done.stdout


def _failed(what: str, where: str) -> DoctorError:
    return DoctorError(
        what,
        where=where,
        next_step="mend the index, proxy or certificates; or leave --lock out",
        exit_code=ExitCode.NOTHING_CHANGED,
    )
