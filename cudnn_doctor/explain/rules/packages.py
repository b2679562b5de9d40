"""Package managers, downloads, disks and builds."""

from __future__ import annotations

import re

from cudnn_doctor.explain.case import Case
from cudnn_doctor.explain.model import Observation

_CUDA_PACKAGE = re.compile(
    r"cudnn|cuda|cublas|cufile|nvidia|nvrtc|cusparse|cusolver|curand|nsight|tensorrt|nccl"
)
_DISTRIBUTION = re.compile(
    r"nvidia-(?:cuda-(?:toolkit|dev|gdb)|cudnn|alternative\S*)|libcud(?:art|nn)\d+(?:\.\d+)?(?=$)|libcuda1"
)
"""CUDA packages that only distributions have, NVIDIA's repository calls its own otherwise."""
_DRIVER_PACKAGE = re.compile(r"cuda-drivers|nvidia-(?:driver|dkms|kernel|utils)|libnvidia-")
_TMP_FOLDERS = ("/tmp", "/var/tmp")  # noqa: S108 - names of folders of the judged machine
_TMP = re.compile(r"/(?:var/)?tmp\b|/dev/shm|pip-(?:unpack|install|build)|\.tmp")


def apt_depends(case: Case) -> None:
    """``A : Depends: B (= v) but w is to be installed``."""
    for seen in case.seen("apt-depends")[:4]:
        who, need = seen.get("who"), seen.get("need")
        if not _CUDA_PACKAGE.search(who + need):
            continue
        culprit = (
            f"{need}: {seen.get('have')} would be installed, {who} wants {seen.get('version')}"
        )
        if _mixed(case, seen):
            continue
        exact = seen.get("op").strip() == "="
        case.vote("apt-version-pin-conflict", 0.92 if exact else 0.6, culprit=culprit, line=seen)
    for seen in case.seen("apt-not-installable")[:4]:
        who, need = seen.get("who"), seen.get("need")
        if not _CUDA_PACKAGE.search(who + need):
            continue
        if _mixed(case, seen):
            continue
        culprit = (
            f"{who} needs {need}, which this release does not have: repository of another release"
        )
        foreign = not _CUDA_PACKAGE.search(need)
        sure = 0.82 if seen.get("what") == "installable" else 0.4
        case.vote(
            "apt-wrong-distro-repo", sure if foreign else sure - 0.2, culprit=culprit, line=seen
        )
        case.vote("apt-version-pin-conflict", 0.2 if foreign else 0.45, culprit=culprit, line=seen)


def _mixed(case: Case, seen: Observation) -> bool:
    """A package of the distribution's own in the way of NVIDIA's, or the reverse."""
    who, need = seen.get("who"), seen.get("need")
    distribution = re.fullmatch(_DISTRIBUTION, who) is not None
    driver = _DRIVER_PACKAGE.match(who) and _DRIVER_PACKAGE.match(need)
    both = case.facts.says(r"NVIDIA's (?:apt )?repositor|both repositor|PPA|two repositor")
    if not (distribution or driver or both) or not _CUDA_PACKAGE.search(need):
        return False
    culprit = f"{who} and {need} come from different repositories"
    weight = 0.92 if distribution and both else 0.75 if distribution or both else 0.65
    case.vote("apt-repos-mixed", weight, culprit=culprit, line=seen)
    case.vote("apt-version-pin-conflict", 0.35, culprit=culprit, line=seen)
    return True


def named_packages(case: Case) -> None:
    """Give the culprit's name to what the message alone supports."""
    named = {
        "apt-no-package": "apt-wrong-distro-repo",
        "apt-no-version": "index-lacks-pinned-version",
        "no-such-version": "index-lacks-pinned-version",
        "placeholder": "pypi-placeholder-package",
        "rpm-conflict": "rpm-repo-conflict",
        "apt-mixed": "apt-repos-mixed",
        "name-taken": "package-layout-change",
        "layout": "package-layout-change",
        "cmake-variable": "cmake-variable-wrong",
    }
    for event, diagnosis in named.items():
        seen = case.first(event)
        if seen is not None:
            parts = [
                seen.get(k) for k in ("name", "name2", "version", "variable", "path", "what", "url")
            ]
            culprit = " ".join(part for part in parts if part)
            if event == "placeholder":
                culprit = (
                    "the name nvidia-cudnn (a placeholder; the real names end in -cu12, -cu13)"
                )
            if diagnosis in case.suspects:
                case.vote(diagnosis, 0.1, culprit=culprit[:160], line=seen)


def pins(case: Case) -> None:
    """Two requirements on one cuDNN package."""
    wanted: dict[str, dict[str, str]] = {}
    first = None
    for seen in case.seen("pin"):
        first = first or seen
        wanted.setdefault(seen.get("name"), {})[seen.get("who").strip()] = seen.get("spec").strip()
    for name, by in wanted.items():
        failed = case.seen("pin-conflict")
        if len(set(by.values())) > 1 or (failed and by):
            who = "; ".join(f"{k} wants {name}{v}" for k, v in list(by.items())[:3])
            case.vote(
                "pip-pin-conflict",
                0.9 if len(set(by.values())) > 1 else 0.6,
                culprit=f"exact pins: {who}",
                line=first,
            )
    for seen in case.seen("pin-conflict")[:1]:
        if seen.get("who"):
            case.vote(
                "pip-pin-conflict",
                0.3,
                culprit=f"{seen.get('who')}'s exact pin {seen.get('spec')}",
                line=seen,
            )


def space(case: Case) -> None:
    """No space: in the folder for temporary files, or where the files go."""
    for seen in case.seen("no-space")[:1]:
        disks = case.facts.machine.system.disks
        tmp = next((d for d in disks if d.path in _TMP_FOLDERS or "tmp" in d.filesystem), None)
        told = re.search(r"(/\S*tmp\S*) is an? (?:tmpfs|small|full)", case.facts.prose)
        pip = case.seen("pip-working") or re.search(
            r"\bpip\b|\buv\b|install packages|\bwheel\b", seen.text
        )
        path = re.search(r"[''\"]?(/[^''\"\s]+)", seen.get("rest"))
        path = path or re.search(r"\bto [''\"](/[^''\"\s]+)", seen.text)
        path = path or re.search(r"\bwrite (/[^''\"\s:]+)", seen.text)
        full = re.search(
            r"(?<!\S)(/[\w./-]*)\s+(?:file ?system )?(?:is |at )?(?:(?:100|9[5-9]) ?% ?)?"
            r"(?:used|full)\b"
            r"|root (?:file ?system|partition) is (?:100 ?% )?full",
            case.facts.prose,
        )
        ours = pip or _CUDA_PACKAGE.search(seen.text) or case.seen("dist-version", "corrupt")
        if not ours:
            continue
        where = path[1] if path else ""
        unknown = tmp is None or tmp.free is None
        if re.search("quota", seen.text, re.I):
            culprit = where or "the quota of the target (home folder)"
            case.vote("disk-full", 0.85, culprit=culprit, line=seen)
        elif unknown and told is not None and not where:
            case.vote("tmp-full", 0.85, told[0], culprit=f"{told[1]} (small)", line=seen)
        elif tmp is not None and (tmp.free == 0 or (tmp.free or 1 << 60) < 4 << 30):
            case.vote(
                "tmp-full",
                0.9,
                f"{tmp.path} is {tmp.filesystem or 'small'}",
                culprit=f"{tmp.path} ({tmp.filesystem or 'small file system'})",
                line=seen,
            )
        elif full is not None and not _TMP.search(full[1] or "/"):
            case.vote("disk-full", 0.85, full[0], culprit=f"{full[1] or '/'} is full", line=seen)
            case.doubt("tmp-full", 0.3)
        elif where and not _TMP.search(where):
            case.vote("disk-full", 0.8, culprit=where, line=seen)
            case.vote("tmp-full", 0.2, line=seen)
        elif where:
            case.vote("tmp-full", 0.85, culprit=where, line=seen)
        else:
            case.vote("tmp-full", 0.55 if pip else 0.3, culprit="TMPDIR", line=seen)
            case.vote("disk-full", 0.45 if pip else 0.6, culprit="the target", line=seen)


def conda_missing(case: Case) -> None:
    """conda lists the packages that no channel has."""
    seen, named = case.first("conda-missing"), case.first("conda-package")
    if seen is not None and named is not None:
        culprit = named.get("name")
        case.vote("index-lacks-pinned-version", 0.8, culprit=culprit, line=named)


def corrupt(case: Case) -> None:
    """Name the file whose download is broken."""
    seen = case.first("corrupt")
    if seen is None:
        return
    text = "\n".join(o.text for o in case.observations)
    file = re.search(r"nvidia[\w.-]*cudnn[\w.-]*|libcudnn[\w.+~-]*|cudnn-[\w.-]*", text)
    ours = file or _CUDA_PACKAGE.search(text)
    if not ours:
        case.doubt("download-corrupt", 0.3)
    case.vote("download-corrupt", 0.2, culprit=file[0] if file else "the download", line=seen)
    if (empty := case.first("no-space")) is not None:
        case.vote("disk-full", 0.3, line=empty)


def headers(case: Case) -> None:
    """Headers not where the build looks."""
    seen = case.first("header-missing")
    if seen is None:
        return
    option = re.search(r"CUDNN_INCLUDE_(?:DIR|PATH)\s*=\s*(\S+)", case.facts.prose)
    culprit = (
        f"CUDNN_INCLUDE_DIR={option[1]}" if option else (seen.get("path") + seen.get("header"))
    )
    case.vote("dev-headers-wrong-path", 0.6, culprit=f"{culprit}: no header there", line=seen)
    if case.facts.copies_known and not case.facts.copies:
        case.vote("cudnn-not-installed", 0.6, "no cuDNN on the machine", line=seen)


def found_in_two_places(case: Case) -> None:
    """CMake took the headers and the library from different trees."""
    for seen in case.seen("found-cudnn"):
        include, library = seen.get("include"), seen.get("library")
        if include and library:
            tree = include.rpartition("/include")[0]
            if tree and not library.startswith(tree) and "conda" in include + library:
                case.vote(
                    "header-library-mismatch", 0.5, culprit=f"{include} with {library}", line=seen
                )


PACKAGE_RULES = (
    apt_depends,
    named_packages,
    pins,
    space,
    conda_missing,
    corrupt,
    headers,
    found_in_two_places,
)
