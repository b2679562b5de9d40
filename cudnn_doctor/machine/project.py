"""The project's own files, and the shell's: lines that pin cuDNN or set a library path.

Read-only and shallow: the usual names in one folder and a few well-known folders below it, each up
to 1 MiB, matched line by line; nothing is parsed beyond the lines that matter here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

import msgspec

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Project, Requirement, Setting
from cudnn_doctor.machine.redact import without_secrets

_LISTS = (
    "requirements*.txt",
    "constraints*.txt",
    "requirements/*.txt",
    "pyproject.toml",
    "environment*.y*ml",
    "setup.cfg",
)
_LOCKS = ("uv.lock", "poetry.lock", "pdm.lock", "pylock*.toml", "cudnn.lock")
_SCRIPTS = (
    "Dockerfile*",
    "*.Dockerfile",
    "docker/Dockerfile*",
    ".devcontainer/Dockerfile*",
    "Containerfile*",
    "*.def",
    "compose*.y*ml",
    "docker-compose*.y*ml",
    ".env",
    ".envrc",
    ".gitlab-ci.yml",
    ".github/workflows/*.y*ml",
    "*.sh",
    ".venv/bin/activate",
    "venv/bin/activate",
)
_SYSTEM = (
    "/etc/environment",
    "/etc/profile",
    "/etc/profile.d/*.sh",
    "/etc/bash.bashrc",
    "/etc/environment.d/*.conf",
    "/etc/systemd/system/*.service",
)
_HOME = (
    ".bashrc",
    ".profile",
    ".bash_profile",
    ".zshrc",
    ".zshenv",
    ".config/environment.d/*.conf",
)
_MOST_FILES = 200

_NAME = (
    r"nvidia[-_](?:cudnn|cublas|cuda)[\w-]*|torch(?:vision|audio)?|pytorch(?:-cuda)?"
    r"|tensorflow(?:[-_][\w-]+)?|tf[-_]nightly|jax(?:lib)?|jax[-_]cuda[\w-]*"
    r"|onnxruntime(?:[-_]gpu)?|cupy(?:[-_]cuda[\w-]+)?|ctranslate2|paddlepaddle(?:[-_]gpu)?"
    r"|tensorrt(?:[-_]cu\d+)?|transformer[-_]engine[\w-]*|mxnet[\w-]*|vllm|xformers"
    r"|faster[-_]whisper|whisperx|cudnn|cudatoolkit|cuda[-_]toolkit|libcudnn\d+[\w-]*"
)
_ASKED = re.compile(
    rf"(?<![\w./:@-])(?P<name>{_NAME})(?![\w.-]*/)(?![\w-])(?P<extra>\[[^\]]*\])?\s*"
    r"(?P<wanted>(?:@\s*\S+)|(?:[=<>!~^]=?=?|:)?\s*[\"']?\s*[=<>!~^]*\s*\d[^\"'#;\s\\]*"
    r"|[=<>!~]=?=?\s*[^\"'#;\s\\]+)?",
    re.IGNORECASE,
)
_LOCKED = re.compile(rf"^\s*name\s*=\s*[\"'](?P<name>{_NAME})[\"']", re.IGNORECASE)
_LOCKED_VERSION = re.compile(r"^\s*version\s*=\s*[\"']([^\"']+)[\"']")
_IMAGE = re.compile(
    r"^\s*(?:FROM\s+(?:--\S+\s+)*|image:\s*[\"']?|From:\s*)"
    r"(?P<name>[\w./:-]*?(?:cuda|pytorch|tensorflow|jax|tensorrt|cudnn|l4t)[\w./-]*)"
    r"(?P<tag>[:@][\w.:+-]+)?",
    re.IGNORECASE,
)
_SETS = re.compile(
    r"(?:^|[\s\"'`=-])(?P<variable>LD_LIBRARY_PATH|LD_PRELOAD|CUDA_HOME|CUDNN_\w*PATH"
    r"|CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES)"
    r"(?:\s*[=:]\s*|(?<=\w)\s+(?=[/$\"']))[\"']?(?P<value>[^\"'`\n#]*)"
)
_COMMENT = re.compile(r"^\s*(?:#|//)")


def probe_project(host: Host, folder: str | None = None) -> Project:
    """Facts of the files in ``folder`` (of the running system, by default the current one) and of
    the shell's and system's files in the probed root."""
    here = Host()
    folder = os.path.abspath(folder) if folder else _current()
    files: list[str] = []
    requirements: list[Requirement] = []
    settings: list[Setting] = []

    def read(host: Host, path: str, shown: str, *finders: _Finder) -> None:
        text = host.text(path)
        if text is None or len(files) >= _MOST_FILES:
            return
        files.append(shown)
        lines = text.splitlines()
        for find in finders:
            for fact in find(lines, shown):
                (settings if isinstance(fact, Setting) else requirements).append(fact)  # type: ignore[arg-type]

    if folder:
        for patterns, finders in (
            (_LISTS, (_asked,)),
            (_LOCKS, (_locked,)),
            (_SCRIPTS, (_images, _asked_by_command, _set)),
        ):
            for path in _matching(here, folder, patterns):
                read(here, path, path[len(folder.rstrip("/")) + 1 :], *finders)
    for path in (*_matching(host, "", _SYSTEM), *_matching(host, host.home, _HOME)):
        read(host, path, path, _set)
    return Project(
        folder=folder,
        files=tuple(files),
        requirements=tuple(requirements),
        settings=tuple(settings),
    )


_Finder = Callable[[list[str], str], Iterator[Requirement | Setting]]


def _current() -> str:
    """The working folder; empty where it is gone, or is the root of the file system."""
    try:
        folder = os.getcwd()
    except OSError:
        return ""
    return "" if folder == "/" else folder


def _matching(host: Host, folder: str, patterns: tuple[str, ...]) -> list[str]:
    found = (path for pattern in patterns for path in host.glob(pattern, folder.rstrip("/")))
    return list(dict.fromkeys(found))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _asked(lines: list[str], file: str) -> Iterator[Requirement]:
    for number, line in enumerate(lines, 1):
        if _COMMENT.match(line):
            continue
        for match in _ASKED.finditer(line.split(" #")[0]):
            wanted = re.sub(r"^[=:]?\s*[\"']\s*", "", (match["wanted"] or "").strip())
            yield Requirement(
                name=_normal(match["name"]),
                wanted=without_secrets((match["extra"] or "") + wanted),
                file=file,
                line=number,
            )


def _asked_by_command(lines: list[str], file: str) -> Iterator[Requirement]:
    """Names on lines of an installing command, its continuation lines included."""
    going_on = False
    for number, line in enumerate(lines, 1):
        if going_on or re.search(r"\b(?:install|add|pip|conda|mamba)\b", line):
            for found in _asked([line], file):
                yield msgspec.structs.replace(found, line=number)
            going_on = line.rstrip().endswith("\\")
        else:
            going_on = False


def _locked(lines: list[str], file: str) -> Iterator[Requirement]:
    for number, line in enumerate(lines, 1):
        match = _LOCKED.match(line)
        if match:
            version = next(
                filter(None, map(_LOCKED_VERSION.match, lines[number : number + 3])), None
            )
            yield Requirement(
                name=_normal(match["name"]),
                wanted=f"=={version[1]}" if version else "",
                file=file,
                line=number,
                kind="lock",
            )


def _images(lines: list[str], file: str) -> Iterator[Requirement]:
    for number, line in enumerate(lines, 1):
        match = _IMAGE.match(line)
        if match:
            tag = (match["tag"] or "").lstrip(":@")
            yield Requirement(name=match["name"], wanted=tag, file=file, line=number, kind="image")


def _first(match: re.Match[str]) -> str:
    """The value alone: without quotes, blanks and ``;`` end it, and other settings may follow."""
    quoted = match.string[match.start("value") - 1] in "\"'"
    return match["value"] if quoted else re.split(r"[\s;&|]", match["value"].lstrip())[0]


def _set(lines: list[str], file: str) -> Iterator[Setting]:
    for number, line in enumerate(lines, 1):
        if _COMMENT.match(line):
            continue
        for match in _SETS.finditer(line):
            if match["value"].strip():
                value = without_secrets(_first(match).strip().rstrip("\\").strip())
                yield Setting(variable=match["variable"], value=value, file=file, line=number)
