"""What people build with finds a prefix: pkg-config, CMake, environment modules, the loader."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest
from conftest import NEW, Redist
from support import roots
from support.cli import Cli

from cudnn_doctor.install import files
from cudnn_doctor.install.plan import SwitchLink

SOURCE = """
#include <cudnn_version.h>
unsigned long cudnnGetVersion(void);
int main(void) { return cudnnGetVersion() == 91002 && CUDNN_MAJOR == 9 ? 0 : 1; }
"""
CMAKE = """
cmake_minimum_required(VERSION 3.13)
project(found C)
find_path(CUDNN_INCLUDE cudnn.h HINTS $ENV{CUDNN_ROOT} PATH_SUFFIXES include REQUIRED)
find_library(CUDNN_LIBRARY cudnn HINTS $ENV{CUDNN_ROOT} PATH_SUFFIXES lib REQUIRED)
add_executable(main main.c)
target_include_directories(main PRIVATE ${CUDNN_INCLUDE})
target_link_libraries(main ${CUDNN_LIBRARY})
"""


@pytest.fixture
def prefix(cli: Cli, redist_tree: Redist, tmp_path: Path) -> Path:
    """A prefix with one version, in a folder with a blank in its name."""
    prefix = tmp_path / "my cudnn"
    archive = redist_tree.archives[NEW, "12"]
    cli(
        "install", "--archive", archive, "--prefix", prefix, "--matrix", redist_tree.matrix, "--yes"
    )
    (tmp_path / "main.c").write_text(SOURCE)
    return prefix


def shell(script: str, folder: Path, **environ: str | Path) -> None:
    """Run a script without any of the variables that point to libraries."""
    hidden = ("LD_LIBRARY_PATH", "CPATH", "LIBRARY_PATH", "PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH")
    own = {k: v for k, v in os.environ.items() if k not in (*hidden, "CUDNN_ROOT", "CUDNN_PATH")}
    own |= {name: str(value) for name, value in environ.items()}
    done = subprocess.run(
        ["bash", "-euc", script], env=own, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def needs(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def test_pkg_config_finds_it(prefix: Path, tmp_path: Path) -> None:
    needs("pkg-config")
    where = {"PKG_CONFIG_PATH": prefix / "lib/pkgconfig"}
    shell('test "$(pkg-config --modversion cudnn)" = 9.10.2', tmp_path, **where)
    shell(
        'eval "gcc main.c $(pkg-config --cflags --libs cudnn) -o main"; ./main', tmp_path, **where
    )


@pytest.mark.parametrize("variable", ["CMAKE_PREFIX_PATH", "CUDNN_ROOT"])
def test_cmake_finds_it(prefix: Path, tmp_path: Path, variable: str) -> None:
    needs("cmake", "make")
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    script = "cmake -S . -B build && cmake --build build && build/main"
    shell(script, tmp_path, **{variable: prefix})


@pytest.mark.parametrize("variable", ["CMAKE_PREFIX_PATH", "CUDNN_ROOT"])
@pytest.mark.parametrize("way", ["env.sh", "module"])
def test_cmake_finds_it_in_a_shell_that_was_told(
    prefix: Path, tmp_path: Path, way: str, variable: str
) -> None:
    """Each of both variables is enough by itself."""
    needs("cmake", "make", *(["modulecmd"] if way == "module" else []))
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    told = {
        "env.sh": f"set +u; . {shlex.quote(str(prefix / 'env.sh'))}",
        "module": 'eval "$(modulecmd bash load cudnn/9.10.2-cuda12)"',
    }
    keep = f'kept="${variable}"; test "$CUDNN_PATH" = "$CUDNN_ROOT"; unset CUDNN_ROOT CUDNN_PATH'
    keep += f' CMAKE_PREFIX_PATH CPATH LIBRARY_PATH LD_LIBRARY_PATH; export {variable}="$kept"'
    build = "cmake -S . -B build && cmake --build build && build/main"
    shell(f"{told[way]}; {keep}; {build}", tmp_path, MODULEPATH=prefix / "modulefiles")


def test_environment_modules_load_it(prefix: Path, tmp_path: Path) -> None:
    needs("modulecmd")
    script = (
        'eval "$(modulecmd bash load cudnn/9.10.2-cuda12)"; test -f "$CUDNN_ROOT/include/cudnn.h"; '
        "gcc main.c -lcudnn -o main; ./main; "
        'eval "$(modulecmd bash unload cudnn/9.10.2-cuda12)"; test -z "${CUDNN_ROOT-}"'
    )
    shell(script, tmp_path, MODULEPATH=prefix / "modulefiles")


def test_the_current_version_is_never_absent_while_it_is_switched(tmp_path: Path) -> None:
    link = tmp_path / "current"
    link.symlink_to("0")
    missing, ended = [], threading.Event()

    def look() -> None:
        while not ended.is_set():
            if not os.path.lexists(link):
                missing.append(True)

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(400):
        files.switch_link(SwitchLink(path=str(link), target=str(number)), tmp_path / f"s{number}")
    ended.set()
    reader.join()
    assert not missing
    assert os.readlink(link) == "399"


# -- the whole system, on an overlay of this machine


def in_the_system(archive: Path, matrix: Path) -> dict[str, object]:
    """Install as root without naming a prefix; what the loader finds before, after, and when it
    was taken back."""
    os.environ |= {"CUDNN_DOCTOR_STATE": "/var/lib/cudnn-doctor"}
    os.environ.pop("LD_LIBRARY_PATH", None)
    seen: dict[str, object] = {"before": _loader_finds()}
    cli = Cli(Path("/tmp/own"))
    cli("install", "--method", "tarball", "--archive", archive, "--matrix", matrix, "--yes")
    conf = Path("/etc/ld.so.conf.d/cudnn-doctor.conf")
    seen |= {"conf": conf.read_text(), "mode": conf.stat().st_mode & 0o777}
    seen["after"] = _loader_finds()
    seen["plan"] = cli.json("list")["installed"][0]["name"]
    cli("rollback", "--yes")
    seen |= {"left": _loader_finds(), "conf left": conf.exists()}
    seen["prefix left"] = os.path.exists("/opt/cudnn")
    return seen


def _loader_finds() -> str:
    """Where the loader finds the SONAME by its cache."""
    done = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if "/opt/cudnn/" in line]
    return next((line.split("=> ")[1] for line in lines if "libcudnn.so.9 " in line), "")


@pytest.mark.root
def test_the_loader_is_told_and_told_back(redist_tree: Redist, tmp_path: Path) -> None:
    if os.path.exists("/opt/cudnn"):
        pytest.skip("this machine has an /opt/cudnn of its own")
    archive = redist_tree.archives[NEW, "12"]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        overlay = roots.Overlay(Path(folder))
        seen = roots.inside(overlay, in_the_system, archive, redist_tree.matrix)
    assert seen == {
        "before": "",
        "conf": "/opt/cudnn/current/lib\n",
        "mode": 0o644,
        "after": "/opt/cudnn/current/lib/libcudnn.so.9",
        "plan": "9.10.2-cuda12",
        "left": "",
        "conf left": False,
        "prefix left": False,
    }
