"""Real child processes: what gets mapped, and what is told when one dies."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.elf import build_library
from support.fakewheels import cudnn_folder

from cudnn_doctor.errors import DoctorError
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.loads import Consumer
from cudnn_doctor.machine.model import Environment
from cudnn_doctor.machine.trace import ask_version, trace, trace_library


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cudnn_folder(tmp_path_factory.mktemp("copies") / "lib", "9.10.2")


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cudnn_folder(tmp_path_factory.mktemp("copies") / "lib", "9.1.0")


def host(**environ: object) -> Host:
    return Host(environ={"PATH": "/usr/bin:/bin", **{k: str(v) for k, v in environ.items()}})


def test_an_open_shim_tells_version_and_maps(copy: Path) -> None:
    traced = trace_library(host(), str(copy / "libcudnn.so.9"))
    assert (traced.ok, traced.version, traced.error) == (True, 91002, "")
    assert set(traced.mapped) == {
        str(copy / "libcudnn.so.9.10.2"),
        str(copy / "libcudnn_graph.so.9.10.2"),
    }


def test_ld_library_path_swaps_what_a_runpath_shim_opens(copy: Path, older: Path) -> None:
    shim = str(copy / "libcudnn.so.9.10.2")
    only_major = older.parent / "swap"
    only_major.mkdir(exist_ok=True)
    target = only_major / "libcudnn_graph.so.9.10.2"
    target.write_bytes((older / "libcudnn_graph.so.9.1.0").read_bytes())
    traced = trace_library(host(LD_LIBRARY_PATH=only_major), shim)
    assert traced.version == 90100
    assert str(target) in traced.mapped
    assert ask_version(host(LD_LIBRARY_PATH=only_major), shim) == "9.10.2"


def test_an_abort_names_the_step(tmp_path: Path, copy: Path) -> None:
    shim = tmp_path / "libcudnn.so.9"
    shim.write_bytes((copy / "libcudnn.so.9.10.2").read_bytes())
    traced = trace_library(host(), str(shim))
    assert not traced.ok
    assert traced.error.startswith("died of SIGABRT at: cudnnGetVersion")
    assert "Unable to load any of" in traced.error
    assert traced.mapped == (str(shim),)
    assert ask_version(host(), str(shim)) is None


def test_what_is_no_library_is_an_error_and_no_crash(tmp_path: Path) -> None:
    bad = tmp_path / "libcudnn.so.9"
    bad.write_bytes(b"\x7fELF" + b"\0" * 100)
    assert "OSError" in trace_library(host(), str(bad)).error
    assert "OSError" in trace_library(host(), str(tmp_path / "absent")).error


def test_a_hanging_library_ends_at_the_limit(tmp_path: Path) -> None:
    source = "#include <unistd.h>\nunsigned long cudnnGetVersion(void) { pause(); return 0; }"
    shim = build_library(tmp_path / "libcudnn.so.9", source=source)
    traced = trace_library(host(), str(shim), timeout=1.0)
    assert traced.error == "took more than 1 s at: cudnnGetVersion"


def fake_framework(tmp_path: Path, module: str, code: str) -> tuple[Consumer, Environment, Host]:
    site = tmp_path / "site"
    site.mkdir()
    (site / f"{module}.py").write_text(code)
    environment = Environment(prefix=str(tmp_path), executable=sys.executable)
    consumer = Consumer(name=module, environment=str(tmp_path), scheme="unknown")
    return consumer, environment, host(PYTHONPATH=site)


def test_a_framework_is_imported_by_its_own_python(tmp_path: Path, copy: Path) -> None:
    shim = copy / "libcudnn.so.9"
    code = f"import ctypes\nprint('noise')\nctypes.CDLL({str(shim)!r})\n"
    consumer, environment, here = fake_framework(tmp_path, "ctranslate2", code)
    traced = trace(here, consumer, (environment,))
    assert (traced.ok, traced.version) == (True, 91002)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import os; os.abort()", "died of SIGABRT at: run `import ctranslate2`"),
        ("raise RuntimeError('version incompatibility')", "RuntimeError: version incompatibility"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("pass", "no libcudnn is mapped after `import ctranslate2`"),
        ("import os; os._exit(7)", "ended with code 7 at: run `import ctranslate2`"),
    ],
)
def test_how_a_framework_can_fail(tmp_path: Path, code: str, told: str) -> None:
    consumer, environment, here = fake_framework(tmp_path, "ctranslate2", code)
    traced = trace(here, consumer, (environment,))
    assert not traced.ok
    assert traced.error.startswith(told)


def test_nothing_is_run_under_a_root_or_without_an_interpreter(tmp_path: Path) -> None:
    with pytest.raises(DoctorError, match="nothing is run"):
        trace(Host(str(tmp_path)), Consumer(name="torch"))
    with pytest.raises(DoctorError, match="interpreter"):
        trace(host(), Consumer(name="torch", scheme="torch-rpath-wheel-cu12", environment="/none"))
    with pytest.raises(DoctorError, match="not run"):
        trace(host(), Consumer(name="/bin/x", scheme="program"))
