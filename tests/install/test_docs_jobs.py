"""The installation guide's jobs, typed as they stand there, on a layer over this machine.

The index is a loopback one with stand-ins for the wheels that the guide names, the matrix is the
real one but for their hashes. Only ``--matrix``, ``--yes`` and ``--no-gpu`` are added.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from support import fakewheels, roots, wheelworld
from support.wheelindex import WheelIndex, digest

from cudnn_doctor.matrix.load import load
from cudnn_doctor.matrix.resolver import Resolution, resolve
from cudnn_doctor.matrix.target import Target

pytestmark = pytest.mark.root
PROJECT = Path(__file__).parents[2]
GUIDE = (PROJECT / "docs" / "install.md").read_text("utf-8")
TORCHS = "9.10.2.21"
"""The cuDNN that the guide's PyTorch pins and its offline host gets."""
WRAPPER = """\
#!/bin/sh
command=$1; shift
case "$command $*" in
  install*--gpu*|download*) set -- "$@" --matrix {matrix} ;;
  install*) set -- "$@" --matrix {matrix} --no-gpu --yes ;;
  rollback*) set -- "$@" --yes ;;
esac
exec {python} -m cudnn_doctor "$command" "$@"
"""
MAIN = """\
#include <cudnn_version.h>
unsigned long cudnnGetVersion(void);
#define VERSION (CUDNN_MAJOR * 10000 + CUDNN_MINOR * 100 + CUDNN_PATCHLEVEL)
int main(void) { return cudnnGetVersion() == VERSION ? 0 : 1; }
"""


def blocks(heading: str) -> list[str]:
    """The shell blocks under a heading of the guide, in order."""
    (part,) = re.findall(rf"^#+ {heading}\n(.*?)(?=^#|\Z)", GUIDE, re.MULTILINE | re.DOTALL)
    found = re.findall(r"^```sh\n(.*?)^```", part, re.MULTILINE | re.DOTALL)
    assert found, heading
    return found


class Place(NamedTuple):
    """Where the guide is followed."""

    layer: roots.Overlay
    home: Path
    base: Path
    """Matrix and programs; the layer keeps what is written below it and the home as well."""
    index: WheelIndex

    def follow(self, script: str, *, offline: bool = False, real_index: bool = False) -> str:
        """Type ``script`` at home, as root; returns what was printed. A failure raises."""
        return str(roots.inside(self.layer, self._run, script, offline, real_index))

    def _run(self, script: str, offline: bool, real_index: bool) -> str:
        self.home.mkdir(exist_ok=True)
        environ = {k: v for k, v in os.environ.items() if not k.startswith("CUDNN_DOCTOR")}
        if not real_index:
            environ |= {"PIP_INDEX_URL": self.index.url, "PIP_CONFIG_FILE": os.devnull}
            environ |= {"PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
            environ |= {"UV_DEFAULT_INDEX": self.index.url, "UV_NO_CONFIG": "1"}
        environ |= {f"{tool}_CACHE_DIR": f"{self.base}/cache" for tool in ("PIP", "UV")}
        programs = f"{self.base}/programs:{os.path.dirname(sys.executable)}"
        environ |= {"HOME": str(self.home), "PATH": f"{programs}:{os.environ['PATH']}"}
        unshared = ["unshare", "--net"] if offline else []
        done = subprocess.run(
            [*unshared, "bash", "-euo", "pipefail", "-c", script],
            cwd=self.home,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}"
        return done.stdout


def matrix_of(wheels: Path) -> str:
    """The real matrix with the hashes of stand-ins, which get the real files' names."""
    document = yaml.load((PROJECT / "compat_matrix.yaml").read_bytes(), yaml.CSafeLoader)
    for wheel in (w for release in document["releases"] for w in release.get("wheels", ())):
        name, version, *_ = wheel["file"].split("-")
        stand_in = wheels / f"{name}-{version}-py3-none-any.whl"
        if wheel["arch"] == "x86_64" and stand_in.exists():
            file = stand_in.rename(wheels / wheel["file"])
            wheel |= {"size": file.stat().st_size, "sha256": digest(file)}
    return str(yaml.dump(document, Dumper=yaml.CSafeDumper))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, WheelIndex]]:
    """A folder with the matrix and the programs, and the index."""
    base = tmp_path_factory.mktemp("guide")
    wheels = base / "wheels"
    newest = resolve(Target(glibc="2.36"), load())
    assert isinstance(newest, Resolution)
    wheelworld.build_wheels(wheels)
    fakewheels.cudnn_wheel(wheels, newest.build, newest.cuda)
    fakewheels.torch_wheel(wheels, "2.8.0")
    fakewheels.build_wheel(wheels, "filelock", "3.0", {"filelock.py": ""})
    matrix = base / "matrix.yaml"
    matrix.write_text(matrix_of(wheels))
    program = base / "programs" / "cudnn-doctor"
    program.parent.mkdir()
    program.write_text(WRAPPER.format(matrix=matrix, python=sys.executable))
    program.chmod(0o755)
    index = WheelIndex(wheels)
    yield base, index
    index.close()


@pytest.fixture
def place(tmp_path: Path, world: tuple[Path, WheelIndex]) -> Place:
    return Place(roots.Overlay(tmp_path / "layer"), tmp_path / "home", *world)


def test_a_pytorch_environment_and_the_same_again(place: Place) -> None:
    (job,) = blocks("A PyTorch environment")
    told = place.follow(job)
    assert f"loaded: cuDNN {TORCHS.rpartition('.')[0]}" in told
    assert "not in this environment" not in told
    (lock,) = blocks("The same again")
    told = place.follow(lock + "cat cudnn.lock\n")
    assert told.count("nothing was changed") == 2
    assert f'"version": "{TORCHS}"' in told


def test_building_cpp_and_undo(place: Place) -> None:
    (build,) = blocks("System-wide, for building C\\+\\+")
    (undo,) = blocks("Undo")
    place.follow(f"cat >main.c <<'END'\n{MAIN}END\n{build}./main; env -i ./main\n")
    poison = place.follow('. /opt/cudnn/env.sh; echo "[${LD_LIBRARY_PATH:-}]"')
    assert "/opt/cudnn" not in poison
    left = place.follow(f"{undo}ls -d /opt/cudnn /etc/ld.so.conf.d/cudnn-doctor.conf || true")
    assert left.count("No such file or directory") == 2


def test_a_docker_image(place: Place) -> None:
    """What is printed is typed in a second layer, which stands for the image."""
    (job,) = blocks("A Docker image")
    text = place.follow(job)
    (script,) = re.findall(r"RUN <<'CUDNN'\n(.*)\nCUDNN\n", text, re.DOTALL)
    (venv,) = re.findall(r"^ENV VIRTUAL_ENV=(.*)", text, re.MULTILINE)
    image = place._replace(layer=roots.Overlay(place.layer.base.with_name("image")))
    image.follow(f"{script}\nls {venv}/lib/python3*/site-packages/nvidia/cudnn/lib/libcudnn.so.9")


def test_an_offline_host(place: Place) -> None:
    """Only the tool's own dependencies come from the real index."""
    fetch, install = blocks("An offline host")
    ignored = shutil.ignore_patterns(".*", "benchmarks", "tests", "__pycache__")
    shutil.copytree(PROJECT, place.home, ignore=ignored)
    place.follow(f"{sys.executable} -m venv .venv", real_index=True)
    for line in fetch.splitlines():
        place.follow(line, real_index="pip wheel" in line)
    added = f"--yes --matrix {place.base}/matrix.yaml"
    script = install.replace("/cudnn-doctor install", f"/cudnn-doctor install {added}")
    told = place.follow(f'{script}ls "$CUDNN_ROOT/lib/libcudnn.so"', offline=True)
    assert "Undo it with" in told
