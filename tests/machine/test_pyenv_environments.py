"""Environments found where people have them: real venv, real uv, conda as folder trees."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support import fakewheels

from cudnn_doctor.machine.environments import probe_environments
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Environment

VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"


def look(host: Host, *extra: str, deep: bool = False) -> dict[str, Environment]:
    return {e.prefix: e for e in probe_environments(host, extra, deep)}


def home_host(home: Path, **environ: str) -> Host:
    return Host("/", {"HOME": str(home), "PATH": f"{home}/no-programs", **environ})


def distribution(site: Path, name: str, version: str) -> None:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")


def test_a_real_venv_is_read_in_full(tmp_path: Path) -> None:
    site = fakewheels.make_venv(tmp_path / "venv")
    found = look(home_host(tmp_path))[str(tmp_path / "venv")]
    assert (found.kind, found.active, found.externally_managed) == ("venv", False, False)
    assert found.executable == str(tmp_path / "venv/bin/python3")
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert found.site_packages == (str(site),)


def test_a_real_uv_environment(tmp_path: Path) -> None:
    uv = pytest.importorskip("uv")
    prefix = tmp_path / ".venv"
    command = [uv.find_uv_bin(), "venv", "-q", "--offline", "-p", sys.executable, str(prefix)]
    subprocess.run(command, check=True)
    wheel = fakewheels.cudnn_wheel(tmp_path, "9.10.2.21")
    command = [uv.find_uv_bin(), "pip", "install", "-q", "--offline", "--no-deps", str(wheel)]
    subprocess.run([*command, "--python", str(prefix)], check=True)
    found = look(home_host(tmp_path))[str(prefix)]
    assert found.kind == "uv"
    (cudnn,) = found.distributions
    assert (cudnn.installer, cudnn.record_checked, cudnn.record_problems) == ("uv", 9, ())


@pytest.mark.parametrize("how", ["VIRTUAL_ENV", "PATH", "CONDA_PREFIX"])
def test_the_active_environment_comes_first(how: str, tmp_path: Path) -> None:
    fakewheels.make_venv(tmp_path / "a/venv")
    fakewheels.make_venv(tmp_path / "b/venv")
    prefix = tmp_path / "b/venv"
    value = f"{prefix}/bin" if how == "PATH" else str(prefix)
    found = probe_environments(home_host(tmp_path, **{how: value}))
    assert [e.prefix for e in found if e.active] == [str(prefix)]
    assert found[0].active


@pytest.mark.parametrize("given", ["{}", "{}/bin/python", "{}/bin/../bin/python3", "{}/"])
def test_given_by_prefix_or_interpreter(given: str, tmp_path: Path) -> None:
    prefix = tmp_path / "somewhere/odd"
    fakewheels.make_venv(prefix)
    assert str(prefix) not in look(home_host(tmp_path / "home"))
    assert str(prefix) in look(home_host(tmp_path / "home"), given.format(prefix))


def test_given_that_does_not_exist_is_a_probe_failure(tmp_path: Path) -> None:
    host = home_host(tmp_path)
    probe_environments(host, [str(tmp_path / "nothing"), "no-such-python"])
    assert [f.probe for f in host.failures] == ["environments"] * 2
    assert str(tmp_path / "nothing") in host.failures[0].why


def test_the_same_environment_is_listed_once(tmp_path: Path) -> None:
    fakewheels.make_venv(tmp_path / ".venv")
    (tmp_path / "venv").symlink_to(".venv")
    prefix = str(tmp_path / ".venv")
    found = probe_environments(home_host(tmp_path, VIRTUAL_ENV=prefix), [prefix])
    assert len([e for e in found if e.prefix.startswith(str(tmp_path))]) == 1


def test_the_tools_own_environment_is_not_the_users(tmp_path: Path) -> None:
    own = Path(sys.prefix)
    assert str(own) not in look(home_host(tmp_path, WORKON_HOME=str(own.parent)))
    assert look(home_host(tmp_path, VIRTUAL_ENV=str(own)))[str(own)].active


def test_the_tools_own_environment_counts_when_a_framework_lives_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = tmp_path / "anywhere/env"
    site = fakewheels.make_venv(prefix)
    monkeypatch.setattr(sys, "prefix", str(prefix))
    distribution(site, "nvidia_ml_py", "13.0")
    assert str(prefix) not in look(home_host(tmp_path))
    distribution(site, "torch", "2.9.1")
    assert str(prefix) in look(home_host(tmp_path))


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        (".virtualenvs/x", "venv"),
        ("project/.venv", "venv"),
        (".pyenv/versions/3.11.7", "pyenv"),
        (".pyenv/versions/3.11.7/envs/x", "pyenv"),
        (".local/share/uv/tools/x", "uv"),
        (".local/share/pipx/venvs/x", "pipx"),
        (".cache/pypoetry/virtualenvs/x-py3.11", "poetry"),
    ],
)
def test_usual_places(place: str, kind: str, tmp_path: Path) -> None:
    prefix = tmp_path / place
    distribution(prefix / "lib/python3.11/site-packages", "torch", "2.9.1")
    (prefix / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    found = look(home_host(tmp_path))[str(prefix)]
    assert (found.kind, found.python) == (kind, "3.11.7")
    assert [d.name for d in found.distributions] == ["torch"]


def test_conda_packages_tell_cudnn_its_files_and_build(tmp_path: Path) -> None:
    prefix = tmp_path / "miniconda3/envs/ml"
    meta = prefix / "conda-meta"
    distribution(prefix / "lib/python3.11/site-packages", "torch", "2.4.1")
    meta.mkdir()
    (meta / "python-3.11.9-hb806964_0_cpython.json").write_text("{}")
    (meta / "numpy-2.1.0-py311_0.json").write_text("{}")
    (meta / "pytorch-2.4.1-cuda120_py311h0.json").write_text("not even JSON")
    cudnn = {
        "depends": ["__glibc >=2.17", "cuda-version >=12,<13.0a0"],
        "files": ["lib/libcudnn.so.9", "include/cudnn_version.h", "info/test.txt"],
    }
    (meta / "cudnn-9.3.0.75-h50b6be5_1.json").write_text(json.dumps(cudnn))
    (meta / "libcudnn-dev-9.3.0.75-0.json").write_text("[broken")
    host = home_host(tmp_path)
    found = look(host)[str(prefix)]
    assert (found.kind, found.python) == ("conda", "3.11.9")
    conda = {d.name: d for d in found.distributions if d.installer == "conda"}
    assert set(conda) == {"pytorch", "cudnn", "libcudnn-dev"}
    assert (conda["cudnn"].version, conda["cudnn"].build) == ("9.3.0.75", "h50b6be5_1")
    assert conda["cudnn"].files == ("lib/libcudnn.so.9", "include/cudnn_version.h")
    assert "cuda-version >=12,<13.0a0" in conda["cudnn"].requires
    assert conda["cudnn"].location == str(prefix)
    assert ["libcudnn-dev" in f.why for f in host.failures] == [True]


def test_a_mounted_root_is_read_inside_its_own_links(tmp_path: Path) -> None:
    dist = tmp_path / "usr/lib/python3/dist-packages"
    distribution(dist, "torch", "1.13.1")
    distribution(tmp_path / f"usr/local/lib/{VERSION}/dist-packages", "jax", "0.4.1")
    (tmp_path / f"usr/lib/{VERSION}").mkdir(parents=True)
    (tmp_path / f"usr/lib/{VERSION}/EXTERNALLY-MANAGED").touch()
    (tmp_path / "srv/env").mkdir(parents=True)
    (tmp_path / "opt").symlink_to("/srv")
    distribution(tmp_path / "srv/env/lib/python3.12/site-packages", "vllm", "0.9.2")
    distribution(tmp_path / "home/ada/venv/lib/python3.12/site-packages", "torch", "2.9.1")
    found = look(Host(str(tmp_path)))
    assert set(found) == {"/usr", "/opt/env", "/home/ada/venv"}
    assert found["/usr"].externally_managed is True
    assert {d.name for d in found["/usr"].distributions} == {"torch", "jax"}


def test_what_an_environment_inherits_is_on_its_path_but_not_its_own(tmp_path: Path) -> None:
    dist = "/usr/lib/python3/dist-packages"
    distribution(tmp_path / dist.lstrip("/"), "torch", "2.9.1")
    prefix = tmp_path / "root/venv"
    (prefix / "lib/python3.11/site-packages").mkdir(parents=True)
    settings = "home = /usr/bin\ninclude-system-site-packages = true\nversion = 3.11.2\n"
    (prefix / "pyvenv.cfg").write_text(settings)
    found = look(Host(str(tmp_path)))["/root/venv"]
    assert found.site_packages == ("/root/venv/lib/python3.11/site-packages", dist)
    assert found.distributions == ()


def test_deep_finds_what_no_list_of_places_holds(tmp_path: Path) -> None:
    distribution(tmp_path / "srv/a/b/c/env/lib/python3.9/site-packages", "torch", "2.1.0")
    distribution(tmp_path / "data/lambda/site-packages", "jaxlib", "0.4.1")
    distribution(tmp_path / "proc/lib/python3.9/site-packages", "torch", "2.1.0")
    distribution(tmp_path / "srv/conda/pkgs/pytorch/lib/python3.9/site-packages", "torch", "2")
    (tmp_path / "srv/conda/conda-meta").mkdir()
    distribution(tmp_path / "srv/.cache/uv/archive-v0/x/lib/python3.9/site-packages", "jax", "1")
    (tmp_path / "srv/loop").symlink_to("/srv")
    assert look(Host(str(tmp_path))) == {}
    found = look(Host(str(tmp_path)), deep=True)
    assert set(found) == {"/srv/a/b/c/env", "/srv/conda", "/data/lambda/site-packages"}
    assert found["/data/lambda/site-packages"].kind == "target"


def test_deep_tells_its_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "srv/x").mkdir(parents=True)
    monkeypatch.setattr("cudnn_doctor.machine.walk._EVERY", 0.0)
    said: list[str] = []
    probe_environments(Host(str(tmp_path)), deep=True, progress=said.append)
    assert said == ["/", "/srv", "/srv/x"]


def test_unreadable_and_odd_things_harm_nothing(tmp_path: Path) -> None:
    prefix = tmp_path / "venv"
    site = prefix / "lib/python3.11/site-packages"
    (site / "torch-2.9.1.dist-info/METADATA").mkdir(parents=True)
    (site / "nvidia_cudnn_cu12-9.1.0.70.dist-info").touch()
    (site / "-.dist-info").mkdir()
    (prefix / "pyvenv.cfg").write_bytes(b"\xff\x00=\n===\nversion = banana\n")
    found = look(home_host(tmp_path))[str(prefix)]
    assert found.python == "3.11"
    assert {(d.name, d.version) for d in found.distributions} == {
        ("torch", "2.9.1"),
        ("nvidia-cudnn-cu12", "9.1.0.70"),
    }
