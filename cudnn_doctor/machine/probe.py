"""Run all probes on a host and put their facts together into a `Machine`.

Probes that wait for something (NVML, package databases, disks) run side by side in threads; those
that need another's facts run after it. A probe that raises becomes a `ProbeFailure`: none can fail
the whole.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from cudnn_doctor import __version__
from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import (
    Driver,
    Environment,
    Gpu,
    LoaderConfig,
    Machine,
    Process,
    Project,
    System,
)
from cudnn_doctor.machine.places import prefix_of

if TYPE_CHECKING:
    from cudnn_doctor.machine.packages import Packaged

T = TypeVar("T")
D = TypeVar("D")
Progress = Callable[[str], None]


class ProbeOptions(NamedTuple):
    """What to look at besides the usual places."""

    root: str = "/"
    """A mounted root file system to read instead of this machine."""
    python: tuple[str, ...] = ()
    """Prefixes or interpreters of further Python environments."""
    deep: bool = False
    """Search the whole file system for environments and cuDNN copies."""
    hashes: bool = False
    """Compare wheels with RECORD by SHA-256, not by size alone."""
    progress: Progress | None = None
    project: str | None = None
    """Folder whose requirement files, Dockerfiles ... are looked at; None: the current one."""


_USUAL = ProbeOptions()


class _Runner:
    """Runs probes with their time taken and their failures recorded."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.durations: dict[str, float] = {}

    def __call__(self, name: str, probe: Callable[[], T], default: D) -> T | D:
        start = time.perf_counter()
        try:
            return probe()
        except Exception as error:  # a bug in one probe must not hide the others' facts
            self.host.fail(name, f"{type(error).__name__}: {error}")
            return default
        finally:
            self.durations[name] = round(time.perf_counter() - start, 6)


def probe_machine(options: ProbeOptions = _USUAL) -> Machine:
    """Read everything about one machine (or mounted root); never raises for what it finds.

    Raises DoctorError (USAGE) where ``options`` name a root or an environment that is none.
    """
    from cudnn_doctor.machine import devices, driver, environ, pci, project
    from cudnn_doctor.machine.redact import printable

    host = Host(options.root)
    if not os.path.isdir(host.root):
        raise _no_such("root file system", options.root, "name the folder where it is mounted")
    run = _Runner(host)
    with ThreadPoolExecutor(max_workers=6) as pool:
        slow = _Slow.start(host, run, pool)
        files = _files(host, run, options, slow.packages)
        pci_devices = run("pci", lambda: pci.probe_pci(host), None)
        nodes = run("devices", lambda: devices.probe_device_nodes(host), None)
        variables = run("environ", lambda: environ.relevant(host), {})
        around = run("project", lambda: project.probe_project(host, options.project), Project())
        found_gpus, nvml = slow.gpus.result()
        found_driver = run(
            "driver", lambda: driver.complete_driver(host, nvml, found_gpus or ()), nvml
        )
    _refuse_strangers(host, options.python, files["environments"])
    packages, repositories, preferred = slow.packages.result()
    machine = Machine(
        tool=__version__,
        taken=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        root=host.root,
        system=slow.system.result(),
        gpus=found_gpus,
        pci=pci_devices,
        device_nodes=nodes,
        driver=found_driver,
        environ=variables,
        packages=packages,
        repositories=repositories,
        preferred=preferred,
        processes=slow.processes.result(),
        project=around,
        failures=tuple(host.failures),
        durations=dict(sorted(run.durations.items())),
    )
    return printable(msgspec.structs.replace(machine, **files))


def _refuse_strangers(
    host: Host, given: Sequence[str], environments: Sequence[Environment]
) -> None:
    known = {host.real(environment.prefix) for environment in environments} | {sys.prefix}
    for path in given:
        prefix = prefix_of(host, path)
        if prefix is None or host.real(prefix) not in known:
            raise _no_such("Python environment", path, "name its folder or its interpreter")


def _no_such(kind: str, path: str, next_step: str) -> DoctorError:
    return DoctorError(f"no {kind} at {path!r}", next_step=next_step, exit_code=ExitCode.USAGE)


class _Slow(NamedTuple):
    """Probes that wait for something else than our own reading."""

    gpus: Future[tuple[tuple[Gpu, ...] | None, Driver]]
    system: Future[System]
    packages: Future[Packaged]
    processes: Future[tuple[Process, ...] | None]

    @classmethod
    def start(cls, host: Host, run: _Runner, pool: ThreadPoolExecutor) -> _Slow:
        from cudnn_doctor.machine import gpus, packages, processes, system

        return cls(
            pool.submit(run, "gpus", lambda: gpus.probe_gpus(host), (None, Driver())),
            pool.submit(run, "system", lambda: system.probe_system(host), System()),
            pool.submit(
                run, "packages", lambda: packages.probe_packages(host), packages.Packaged()
            ),
            pool.submit(run, "processes", lambda: processes.probe_processes(host), None),
        )


def _files(
    host: Host,
    run: _Runner,
    options: ProbeOptions,
    packages: Future[Packaged],
) -> dict[str, Any]:
    """Fields of the machine about files; each probe needs those before it."""
    from cudnn_doctor.machine import copies, frameworks, headers, libraries, loaderconfig, toolkits
    from cudnn_doctor.machine.environments import probe_environments

    extra, deep, hashes, progress = options[1:5]
    loader = run("loader", lambda: loaderconfig.probe_loader(host), LoaderConfig())
    envs = run("environments", lambda: probe_environments(host, extra, deep, hashes, progress), ())
    users = run("frameworks", lambda: frameworks.probe_frameworks(host, envs), ())
    cuda = run("toolkits", lambda: toolkits.probe_toolkits(host, envs), None)
    heads = run("headers", lambda: headers.probe_headers(host, envs, cuda or ()), ())
    found = run(
        "libraries",
        lambda: libraries.probe_libraries(host, envs, users, cuda or (), loader, deep=deep),
        (),
    )
    owners = packages.result()[0]
    return {
        "loader": loader,
        "environments": envs,
        "frameworks": users,
        "toolkits": cuda,
        "headers": heads,
        "libraries": found,
        "copies": run(
            "copies", lambda: copies.probe_copies(host, found, envs, owners, heads), None
        ),
    }
