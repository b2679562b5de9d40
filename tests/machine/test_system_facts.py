"""System, container, disks and environment from folder trees and made-up variables."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

from cudnn_doctor.machine.container import container_kind, has_gpu_nodes
from cudnn_doctor.machine.environ import relevant
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.system import probe_system

UBUNTU = """PRETTY_NAME="Ubuntu 22.04.4 LTS"
ID=ubuntu
ID_LIKE="debian"
VERSION_ID="22.04"
"""


def write(root: Path, path: str, text: str = "", mode: int = 0o644) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)


def test_this_machine_is_known() -> None:
    system = probe_system(Host())
    assert system.kernel == platform.release()
    assert system.arch == platform.machine()
    assert system.disks[0].path == system.tmpdir
    assert system.disks[0].free is not None
    mounts = Path("/proc/self/mounts").read_text()
    assert system.disks[0].filesystem != "" or " / " not in mounts
    assert system.libc is not None


def test_an_image_is_read_without_running_it(tmp_path: Path) -> None:
    write(tmp_path, "/usr/lib/os-release", UBUNTU)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").symlink_to("/usr/lib/os-release")
    write(tmp_path, "/usr/bin/apt-get", mode=0o755)
    write(tmp_path, "/usr/bin/dnf")  # not executable
    folder = tmp_path / "lib/x86_64-linux-gnu"
    folder.mkdir(parents=True)
    (folder / "libc.so.6").write_bytes(
        b"\0GNU C Library (Ubuntu GLIBC 2.35-0ubuntu3.8) stable release version 2.35.\n\0"
    )
    (tmp_path / "bin").mkdir()
    source = "int main(void) { return 0; }"
    command = ["gcc", "-x", "c", "-", "-o", str(tmp_path / "bin/sh")]
    subprocess.run(command, input=source, text=True, check=True)
    system = probe_system(Host(str(tmp_path)))
    assert (system.distro_id, system.distro_version) == ("ubuntu", "22.04")
    assert system.distro_like == ("debian",)
    assert system.distro_name == "Ubuntu 22.04.4 LTS"
    assert (system.libc, system.libc_version) == ("glibc", "2.35")
    assert system.arch == platform.machine()
    assert system.package_managers == ("apt-get",)
    assert (system.kernel, system.user, system.is_root) == (None, None, None)
    assert (system.wsl, system.container, system.selinux) == (None, None, None)


def test_musl_is_seen_beside_a_glibc_shim(tmp_path: Path) -> None:
    write(tmp_path, "/lib/ld-musl-x86_64.so.1")
    write(tmp_path, "/lib/ld-linux-x86-64.so.2")
    assert probe_system(Host(str(tmp_path))).libc == "musl"


def test_old_glibc_by_its_file_name(tmp_path: Path) -> None:
    write(tmp_path, "/lib64/libc-2.17.so")
    (tmp_path / "lib64/libc.so.6").symlink_to("libc-2.17.so")
    assert probe_system(Host(str(tmp_path))).libc_version == "2.17"


def test_an_empty_folder_is_unknown_not_wrong(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    system = probe_system(host)
    assert (system.distro_id, system.libc, system.arch) == (None, None, None)
    assert host.failures == []


def test_wsl_by_its_kernel(tmp_path: Path) -> None:
    write(tmp_path, "/proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n")
    system = probe_system(Host(str(tmp_path)))
    assert system.wsl is True
    assert system.container is None


@pytest.mark.parametrize(
    ("path", "text", "environ", "kind"),
    [
        ("/.dockerenv", "", {}, "docker"),
        ("/run/.containerenv", "engine=podman", {}, "podman"),
        ("/run/systemd/container", "systemd-nspawn\n", {}, "systemd-nspawn"),
        ("/proc/1/cgroup", "0::/kubepods/besteffort/pod1/abc\n", {}, "kubernetes"),
        ("/proc/1/cgroup", "12:pids:/docker/9a3f\n", {}, "docker"),
        ("/proc/1/cgroup", "0::/init.scope\n", {}, None),
        ("/proc/1/cgroup", "0::/system.slice/docker.service\n", {}, None),
        ("/.dockerenv", "", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ("/x", "", {"APPTAINER_CONTAINER": "/i.sif"}, "apptainer"),
        ("/x", "", {"container": "lxc"}, "lxc"),
    ],
)
def test_container_kinds(
    tmp_path: Path, path: str, text: str, environ: dict[str, str], kind: str | None
) -> None:
    (tmp_path / "proc").mkdir()
    write(tmp_path, path, text)
    assert container_kind(Host(str(tmp_path), environ)) == kind


def test_a_container_without_nodes_got_no_gpu_whatever_its_image_says(tmp_path: Path) -> None:
    write(tmp_path, "/proc/1/cgroup")
    write(tmp_path, "/.dockerenv")
    host = Host(str(tmp_path), {"NVIDIA_VISIBLE_DEVICES": "all"})
    assert probe_system(host).container_gpu is False
    write(tmp_path, "/dev/nvidia0")
    assert has_gpu_nodes(host)
    assert probe_system(host).container_gpu is True


def test_docker_context(tmp_path: Path) -> None:
    config = "/home/me/.docker/config.json"
    write(tmp_path, config, '{"currentContext": "desktop-linux"}')
    host = Host(str(tmp_path), {"HOME": "/home/me"})
    assert probe_system(host).docker_context == "desktop-linux"
    write(tmp_path, config, "[1]")
    assert probe_system(host).docker_context == "default"
    assert host.failures == []
    write(tmp_path, config, "{")
    assert probe_system(host).docker_context is None
    assert [failure.probe for failure in host.failures] == ["system"]


def test_selinux(tmp_path: Path) -> None:
    (tmp_path / "sys/fs").mkdir(parents=True)
    assert probe_system(Host(str(tmp_path))).selinux == "disabled"
    write(tmp_path, "/sys/fs/selinux/enforce", "1")
    assert probe_system(Host(str(tmp_path))).selinux == "enforcing"


def test_only_variables_that_matter_and_no_secrets() -> None:
    given = {
        "LD_LIBRARY_PATH": "/a:/b",
        "CUDA_VISIBLE_DEVICES": "",
        "CUDNN_LOGLEVEL_DBG": "2",
        "HTTPS_PROXY": "http://me:pw@proxy:3128",
        "PIP_INDEX_URL": "https://me:pw@index.example/simple",
        "UV_INDEX_CORP_PASSWORD": "pw",
        "NVIDIA_API_KEY": "nvapi-1",
        "TF_TOKEN": "x",
        "MAIL": "/var/mail/me",
    }
    assert relevant(Host("/", given)) == {
        "CUDA_VISIBLE_DEVICES": "",
        "CUDNN_LOGLEVEL_DBG": "2",
        "HTTPS_PROXY": "set",
        "LD_LIBRARY_PATH": "/a:/b",
        "PIP_INDEX_URL": "https://index.example/simple",
    }
