"""Run all probes on a host and put their facts together into a `Machine`.

Probes that wait for something (NVML, package databases, disks) run side by side in threads; those
that need another's facts run after it. A probe that raises becomes a `ProbeFailure`: none can fail
the whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timezone
from typing import NamedTuple, TypeVar

from cudnn_doctor import __version__
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Driver, LoaderConfig, Machine, System

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
    """Read everything about one machine (or mounted root); never raises for what it finds."""
    from cudnn_doctor.machine import (
        copies,
        devices,
        driver,
        environ,
        environments,
        frameworks,
        gpus,
        headers,
        libraries,
        loaderconfig,
        packages,
        pci,
        processes,
        system,
        toolkits,
    )

    host = Host(options.root)
    run = _Runner(host)
    with ThreadPoolExecutor(max_workers=6) as pool:

        def later(name: str, probe: Callable[[], T], default: D) -> Future[T | D]:
            return pool.submit(run, name, probe, default)

        gpus_later = later("gpus", lambda: gpus.probe_gpus(host), (None, Driver()))
        system_later = later("system", lambda: system.probe_system(host), System())
        packages_later = later("packages", lambda: packages.probe_packages(host), ((), ()))
        processes_later = later("processes", lambda: processes.probe_processes(host), None)
        loader = run("loader", lambda: loaderconfig.probe_loader(host), LoaderConfig())
        envs = run(
            "environments",
            lambda: environments.probe_environments(
                host, options.python, options.deep, options.hashes, options.progress
            ),
            (),
        )
        found_frameworks = run("frameworks", lambda: frameworks.probe_frameworks(host, envs), ())
        found_toolkits = run("toolkits", lambda: toolkits.probe_toolkits(host, envs), None)
        found_headers = run(
            "headers", lambda: headers.probe_headers(host, envs, found_toolkits or ()), ()
        )
        found_libraries = run(
            "libraries",
            lambda: libraries.probe_libraries(
                host, envs, found_frameworks, found_toolkits or (), loader, deep=options.deep
            ),
            (),
        )
        found_packages, repositories = packages_later.result()
        found_copies = run(
            "copies",
            lambda: copies.probe_copies(host, found_libraries, envs, found_packages, found_headers),
            None,
        )
        pci_devices = run("pci", lambda: pci.probe_pci(host), None)
        nodes = run("devices", lambda: devices.probe_device_nodes(host), None)
        found_gpus, nvml_driver = gpus_later.result()
        found_driver = run(
            "driver",
            lambda: driver.complete_driver(host, nvml_driver, found_gpus or ()),
            nvml_driver,
        )
        found_system, found_processes = system_later.result(), processes_later.result()
    return Machine(
        tool=__version__,
        taken=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        root=host.root,
        system=found_system,
        gpus=found_gpus,
        pci=pci_devices,
        device_nodes=nodes,
        driver=found_driver,
        environ=run("environ", lambda: environ.relevant(host), {}),
        loader=loader,
        libraries=found_libraries,
        copies=found_copies,
        headers=found_headers,
        toolkits=found_toolkits,
        environments=envs,
        frameworks=found_frameworks,
        packages=found_packages,
        repositories=repositories,
        processes=found_processes,
        failures=tuple(host.failures),
        durations=dict(sorted(run.durations.items())),
    )
