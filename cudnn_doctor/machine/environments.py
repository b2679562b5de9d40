"""Python environments and what in them matters for cuDNN. No interpreter is run."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence

from cudnn_doctor.machine.distributions import read_conda_packages, read_distributions
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Environment
from cudnn_doctor.machine.places import Candidate, candidates, prefix_of, pyenv_root
from cudnn_doctor.machine.records import Comparer
from cudnn_doctor.machine.walk import walk

_PYTHON_FOLDER = re.compile(r"python3(\.\d+)?t?")
_SITE = re.compile(r"(?P<prefix>.*)/lib(64)?/(python3[^/]*)/(site|dist)-packages")


def probe_environments(
    host: Host,
    extra: Sequence[str] = (),
    deep: bool = False,
    hashes: bool = False,
    progress: Callable[[str], None] | None = None,
) -> tuple[Environment, ...]:
    """All Python environments found, the active one first, then the ones in ``extra`` (prefixes
    or interpreters); with ``deep`` also those anywhere on local disks. ``hashes`` compares wheels
    with RECORD by SHA-256. Paths in ``extra`` that are none become probe failures."""
    comparer = Comparer(host, hashes)
    named = {host.real(prefix) for given in extra if (prefix := prefix_of(host, given))}
    seen: set[str] = set()
    found: list[Environment] = []
    for candidate in _all(host, extra, deep, progress):
        real = host.real(candidate.prefix)
        if real is None or real in seen:
            continue
        environment = _read(host, candidate, comparer)
        if environment is not None:
            seen.add(real)
            if real in named or not _is_our_own(host, environment, real):
                found.append(environment)
    return tuple(found)


def _all(
    host: Host, extra: Sequence[str], deep: bool, progress: Callable[[str], None] | None
) -> Iterator[Candidate]:
    yield from candidates(host, extra)
    if not deep:
        return
    for folder in walk(host, progress):
        if "pyvenv.cfg" in folder.files or "conda-meta" in folder.folders:
            yield Candidate(folder.path)
        for name in folder.folders & {"site-packages", "dist-packages"}:
            path = f"{folder.path.rstrip('/')}/{name}"
            match = _SITE.fullmatch(path)
            yield Candidate(match["prefix"] or "/") if match else Candidate(path, "target")


def _is_our_own(host: Host, environment: Environment, real: str) -> bool:
    """The tool's environment is none of the user's, unless it is active, named or used as one."""
    if not host.live or environment.active or real != host.real(sys.prefix):
        return False
    return all(d.name == "nvidia-ml-py" for d in environment.distributions)


def _read(host: Host, candidate: Candidate, comparer: Comparer) -> Environment | None:
    prefix = candidate.prefix
    settings = _pyvenv(host, prefix)
    sites = _site_packages(host, prefix)
    is_conda = host.is_dir(f"{prefix}/conda-meta")
    if not sites and not is_conda and settings is None:
        sites = _bare_target(host, prefix)
        if not sites:
            return None
        return Environment(
            prefix=prefix,
            kind="target",
            site_packages=tuple(sites),
            distributions=tuple(read_distributions(host, prefix, comparer)),
        )
    distributions = [d for site in sites for d in read_distributions(host, site, comparer)]
    if is_conda:
        distributions += read_conda_packages(host, prefix)
    sites += [site for site in _inherited(host, candidate, settings) if site not in sites]
    return Environment(
        prefix=prefix,
        python=_python_version(host, prefix, settings),
        executable=_executable(host, prefix, candidate.kind),
        kind=_kind(host, candidate, settings, is_conda),
        active=candidate.active,
        site_packages=tuple(sites),
        distributions=tuple(distributions),
        externally_managed=_externally_managed(host, prefix, settings),
    )


def _kind(host: Host, candidate: Candidate, settings: dict[str, str] | None, is_conda: bool) -> str:
    if is_conda:
        return "conda"
    if candidate.prefix in ("/usr", "/usr/local"):
        return "system"
    if candidate.prefix.startswith(f"{pyenv_root(host)}/versions/"):
        return "pyenv"
    if settings is None:
        return "prefix" if candidate.kind == "venv" else candidate.kind
    if "uv" in settings and candidate.kind == "venv":
        return "uv"
    return candidate.kind


def _pyvenv(host: Host, prefix: str) -> dict[str, str] | None:
    """The settings of pyvenv.cfg, None where there is none."""
    text = host.text(f"{prefix}/pyvenv.cfg", 1 << 16)
    if text is None:
        return None
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _site_packages(host: Host, prefix: str) -> list[str]:
    """Folders of packages that belong to a prefix, each once however it is linked. Debian's
    Python in /usr keeps what pip installs in /usr/local/lib/python3.X/dist-packages."""
    kinds = ("site-packages",) if prefix == "/usr/local" else ("site-packages", "dist-packages")
    patterns = [(f"{prefix}/{lib}", kind) for lib in ("lib", "lib64") for kind in kinds]
    if prefix == "/usr":
        patterns.insert(0, ("/usr/local/lib", "dist-packages"))
    found: dict[str, str] = {}
    for folder, kind in patterns:
        for name in host.names(folder):
            path = f"{folder}/{name}/{kind}"
            if _PYTHON_FOLDER.fullmatch(name) and host.is_dir(path):
                found.setdefault(host.real(path) or path, path)
    return list(found.values())


def _inherited(host: Host, candidate: Candidate, settings: dict[str, str] | None) -> Iterator[str]:
    """Folders of the base Python that this environment sees after its own."""
    settings = settings or {}
    if settings.get("include-system-site-packages", "").lower() == "true":
        home = settings.get("home", "").rstrip("/")
        bases = ["/usr/local", "/usr"] if home == "/usr/bin" else [home.rpartition("/")[0]]
    else:
        bases = ["/usr/local", "/usr"] if candidate.kind == "user" else []
    for base in bases:
        if base.startswith("/"):
            yield from _site_packages(host, base)


def _bare_target(host: Host, folder: str) -> list[str]:
    """A folder that holds distributions itself (``pip install --target``)."""
    return [folder] if any(n.endswith(".dist-info") for n in host.names(folder)) else []


def _python_version(host: Host, prefix: str, settings: dict[str, str] | None) -> str | None:
    for key in ("version_info", "version"):
        match = re.match(r"\d+\.\d+(\.\d+)?", (settings or {}).get(key, ""))
        if match:
            return match[0]
    for entry in host.names(f"{prefix}/conda-meta"):
        match = re.fullmatch(r"python-(\d[^-]*)-[^-]*\.json", entry)
        if match:
            return match[1]
    link = host.link(f"{prefix}/bin/python3") or ""
    match = re.search(r"python(3\.\d+)$", link)
    if match:
        return match[1]
    minors = [
        int(name[8:]) for name in host.names(f"{prefix}/lib") if re.fullmatch(r"python3\.\d+", name)
    ]
    return f"3.{max(minors)}" if minors else None


def _executable(host: Host, prefix: str, kind: str) -> str | None:
    if kind == "user":
        return None
    for name in ("python3", "python"):
        if host.exists(f"{prefix}/bin/{name}"):
            return f"{prefix}/bin/{name}"
    return None


def _externally_managed(host: Host, prefix: str, settings: dict[str, str] | None) -> bool:
    """PEP 668; never in a virtual environment."""
    if settings is not None:
        return False
    return any(
        host.exists(f"{prefix}/lib/{name}/EXTERNALLY-MANAGED")
        for name in host.names(f"{prefix}/lib")
        if name.startswith("python3")
    )
