"""Which tests run where: heavy ones skip with a reason unless they are asked for."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator

import pytest
from support.nvml import NvmlStub

HEAVY = {
    "wheels": "downloads whole wheels from the package index",
    "root": "needs root and makes chroots or install roots",
    "browser": "drives a real headless browser",
}
"""Markers of tests that the short suite leaves out; CUDNN_DOCTOR_TESTS=all runs them too."""


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep journal, receipts and downloads of the tests away from this machine's own."""
    with pytest.MonkeyPatch.context() as patch:
        base = tmp_path_factory.mktemp("own")
        patch.setenv("CUDNN_DOCTOR_STATE", str(base / "state"))
        patch.setenv("CUDNN_DOCTOR_CACHE", str(base / "cache"))
        yield


def pytest_configure() -> None:
    """Let programs of the tests' own environment (uv) be found, after all others; let Ctrl-C reach
    the programs under test where the tests run in the background, too."""
    os.environ["PATH"] += os.pathsep + os.path.dirname(sys.executable)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _gpu_here() -> bool:
    return shutil.which("nvidia-smi") is not None and os.path.exists("/dev/nvidiactl")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    run_all = os.environ.get("CUDNN_DOCTOR_TESTS") == "all"
    for item in items:
        if item.get_closest_marker("gpu") and not _gpu_here():
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU on this machine"))
        if item.get_closest_marker("root") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs root"))
        for marker, why in HEAVY.items():
            if item.get_closest_marker(marker) and not run_all:
                reason = f"{why}; set CUDNN_DOCTOR_TESTS=all to run it"
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def nvml_stub(tmp_path_factory: pytest.TempPathFactory) -> NvmlStub:
    """Call it with GPUs and a driver; put the variables it returns into a Host's environ."""
    return NvmlStub(tmp_path_factory.mktemp("nvml"))


TOOLS = {"gcc", "readelf", "ldconfig", "xz", "curl", "git", "uv", "gpg", "apt-ftparchive"}
"""Programs that a bare machine may lack: a test that cannot find one is skipped, not failed."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, FileNotFoundError) and error.filename in TOOLS:
        try:
            pytest.skip(f"{error.filename} is not installed")
        except pytest.skip.Exception:
            call.excinfo = pytest.ExceptionInfo.from_current()
