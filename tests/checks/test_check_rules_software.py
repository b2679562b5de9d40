"""Rules about files, frameworks and packages: each with the fault and its healthy twin."""

from __future__ import annotations

import msgspec
import pytest
from check_builders import (
    PREFIX,
    SITE,
    SYSTEM,
    WHEEL,
    change,
    environment,
    finding,
    framework,
    healthy,
    judge,
    onnxruntime,
    plain_library,
    problems,
    replace_library,
    with_copy,
    without_files,
)

from cudnn_doctor.machine.model import (
    CacheEntry,
    CudnnCopy,
    Distribution,
    Gpu,
    Header,
    Library,
    Package,
    Repository,
    System,
)

replace = msgspec.structs.replace


# -- files, headers


def test_fake_link() -> None:
    link = Library(
        path=f"{SYSTEM}/libcudnn.so.8",
        link="libcuda.so.580.95.05",
        real=f"{SYSTEM}/libcuda.so.580.95.05",
        status="ok",
        soname="libcuda.so.1",
        machine="x86_64",
    )
    machine = replace(healthy(), libraries=(*healthy().libraries, link))
    assert problems(machine) == ["cudnn-fake-symlink"]
    assert finding(machine, "cudnn-fake-symlink").remedies[0].commands[0] == (
        f"sudo rm -- {SYSTEM}/libcudnn.so.8"
    )


def test_flattened_links() -> None:
    names = ("libcudnn.so", "libcudnn.so.9", "libcudnn.so.9.10.2")
    files = tuple(
        replace(plain_library(f"/opt/cudnn/lib/{name}", "9.10.2"), soname="libcudnn.so.9")
        for name in names
    )
    copy = CudnnCopy(folder="/opt/cudnn/lib", major=9, files=names, kind="prefix")
    machine = replace(
        healthy(),
        libraries=(*healthy().libraries, *files),
        copies=(*(healthy().copies or ()), copy),
    )
    assert problems(machine) == ["cudnn-symlink-flattened"]
    linked = tuple(replace(x, link=names[2]) if x.path[-1] != "2" else x for x in files)
    healthy_twin = replace(machine, libraries=(*healthy().libraries, *linked))
    assert problems(healthy_twin) == []


def test_include_variable_names_a_folder_without_the_header() -> None:
    header = Header(path="/usr/include/cudnn_version.h", version="9.14.0")
    machine = replace(healthy(), headers=(header,), environ={"CUDNN_INCLUDE_DIR": "/opt/x/include"})
    assert problems(machine) == ["dev-headers-wrong-path"]
    right = replace(machine, environ={"CUDNN_INCLUDE_DIR": "/usr/include"})
    assert problems(right) == []


def test_cmake_variables() -> None:
    wrong = {"CUDNN_LIBRARY": "/usr/lib/x86_64-linux-gnu"}
    assert problems(replace(healthy(), environ=wrong)) == ["cmake-variable-wrong"]
    right = {"CUDNN_LIBRARY": "/usr/lib/x86_64-linux-gnu/libcudnn.so"}
    assert problems(replace(healthy(), environ=right)) == []


def test_a_build_pointed_at_a_wheel() -> None:
    machine = replace(healthy(), environ={"CUDNN_ROOT": f"{SITE}/nvidia/cudnn"})
    assert problems(machine) == ["wheel-no-unversioned-so"]


# -- frameworks


def test_not_on_the_loader_path() -> None:
    ort = replace(onnxruntime("1.20.1"), binaries=(f"{SITE}/onnxruntime/capi/x.so",))
    binary = replace(plain_library(ort.binaries[0]), needed=("libcudnn.so.9",))
    machine = replace(healthy(), frameworks=(ort,), libraries=(*healthy().libraries, binary))
    assert problems(machine) == ["cudnn-not-on-loader-path"]
    command = finding(machine, "cudnn-not-on-loader-path").remedies[0].commands[0]
    assert command.startswith(f"export LD_LIBRARY_PATH={WHEEL}")
    twin = replace(machine, environ={"LD_LIBRARY_PATH": f"{WHEEL}:{SITE}/nvidia/cublas/lib"})
    assert problems(twin) == []


def test_a_framework_that_serves_cpus_too_needs_no_cudnn_where_no_gpu_is() -> None:
    torch = healthy().frameworks[0]
    binary = plain_library(f"{SITE}/tensorflow/libtensorflow_cc.so.2")
    guest = replace(torch, name="tensorflow", distribution="tensorflow", version="2.18.0")
    guest = replace(guest, binaries=(binary.path,), pins=(), cudnn_built=None)
    machine = replace(
        healthy(), copies=(), libraries=(binary,), frameworks=(guest,), environments=()
    )
    assert "cudnn-not-installed" in problems(machine)
    without_gpu = replace(machine, gpus=(), pci=())
    assert problems(without_gpu, no_gpu=True) == []


def test_a_framework_without_the_wheels_that_its_objects_need() -> None:
    torch = healthy().frameworks[0]
    needed = ("libcudnn.so.9", "libcublas.so.12", "libcurand.so.10", "libm.so.6")
    machine = replace_library(healthy(), torch.binaries[0], needed=needed)
    assert problems(machine) == ["other-cuda-lib-missing"]
    found = finding(machine, "other-cuda-lib-missing")
    assert found.culprit == "libcurand.so.10"
    asks = Distribution(
        name="torch", version="2.8.0", location=SITE, requires=("nvidia-curand-cu12==10.3",)
    )
    asking = replace(machine, environments=(environment(asks, environment().distributions[1]),))
    assert problems(asking) == ["framework-deps-not-installed"]
    entry = CacheEntry(soname="libcurand.so.10", path="/usr/local/cuda/lib64/libcurand.so.10")
    cache = (*(machine.loader.cache or ()), entry)
    assert problems(change(asking, "loader", cache=cache)) == []


def test_only_another_major_is_there() -> None:
    machine = without_files(healthy(), *(x.path for x in healthy().libraries if "cudnn" in x.path))
    torch = Distribution(name="torch", version="2.8.0", requires=("numpy",), location=SITE)
    machine = replace(machine, copies=(), environments=(environment(torch),))
    machine = with_copy(machine, SYSTEM, "8.9.7", cached=True, kind="system")
    assert "cudnn-major-mismatch" in problems(machine)


def test_older_than_the_build() -> None:
    machine = framework(healthy("9.5.1"), cudnn_built="9.10.2")
    assert "cudnn-older-than-framework-build" in problems(machine)
    newer = framework(healthy("9.14.0"), cudnn_built="9.10.2")
    assert "cudnn-older-than-framework-build" not in problems(newer)


def test_bundled_copy_wins_is_a_note() -> None:
    bundled = CudnnCopy(
        folder=f"{SITE}/torch/lib", major=9, version="9.1.0", kind="bundled", environment=PREFIX
    )
    wheel = Distribution(name="nvidia-cudnn-cu12", version="9.10.2.21", location=SITE)
    machine = replace(
        healthy(),
        partial=True,
        copies=(bundled,),
        environments=(environment(wheel),),
    )
    assert finding(machine, "bundled-copy-wins").severity == "info"


def test_known_issue_of_this_framework_release_is_a_warning() -> None:
    machine = framework(healthy(), version="2.9.1")
    assert "cudnn-version-performance" in problems(machine)
    assert "cudnn-version-performance" not in problems(healthy())


# -- packages


def test_placeholder_package() -> None:
    fake = Distribution(name="nvidia-cudnn", version="0.0.1.dev5", location=SITE)
    machine = replace(healthy(), environments=(environment(*environment().distributions, fake),))
    assert problems(machine) == ["pypi-placeholder-package"]


@pytest.mark.parametrize(
    ("installed", "severity"),
    [("9.10.2.21", None), ("9.14.0.64", "warning"), ("9.1.0.70", "error")],
)
def test_pin(installed: str, severity: str | None) -> None:
    torch = environment().distributions[0]
    wheel = Distribution(name="nvidia-cudnn-cu12", version=installed, location=SITE)
    machine = replace(healthy(installed), environments=(environment(torch, wheel),))
    found = [f.severity for f in judge(machine).findings if f.id == "pip-pin-conflict"]
    assert found == ([severity] if severity else [])


def test_uv_environments_get_uv_commands() -> None:
    torch = environment().distributions[0]
    wheel = Distribution(name="nvidia-cudnn-cu12", version="9.14.0.64", location=SITE)
    machine = replace(healthy("9.14.0"), environments=(environment(torch, wheel, kind="uv"),))
    assert finding(machine, "pip-pin-conflict").remedies[0].commands == (
        "uv pip install --python /venv/bin/python nvidia-cudnn-cu12==9.10.2.21",
    )


def test_dev_and_runtime_packages_differ() -> None:
    runtime = Package(name="libcudnn9-cuda-12", version="9.14.0.64-1", manager="dpkg")
    dev = Package(name="libcudnn9-dev-cuda-12", version="9.9.0.52-1", manager="dpkg")
    assert problems(replace(healthy(), packages=(runtime, dev))) == ["apt-version-pin-conflict"]
    both = replace(dev, version=runtime.version)
    assert problems(replace(healthy(), packages=(runtime, both))) == []


@pytest.mark.parametrize(
    ("system", "manager", "lock", "commands"),
    [
        (
            System(distro_id="ubuntu"),
            "dpkg",
            ("", ""),
            [
                "apt-mark unhold libcudnn9-cuda-12",
                "apt-get install -y --allow-downgrades libcudnn9-cuda-12=9.9.0.52-1"
                " libcudnn9-devel-cuda-12=9.9.0.52-1",
            ],
        ),
        (
            System(distro_id="rocky", distro_like=("rhel",)),
            "rpm",
            ("/etc/dnf/plugins/versionlock.list", "libcudnn9-cuda-12-0:9.14*"),
            [
                "dnf versionlock delete libcudnn9-cuda-12",
                "dnf install -y libcudnn9-cuda-12-9.9.0.52-1 libcudnn9-devel-cuda-12-9.9.0.52-1",
            ],
        ),
        (
            System(distro_id="sles", distro_like=("suse",)),
            "rpm",
            ("/etc/zypp/locks", "libcudnn9*"),
            [
                "zypper removelock 'libcudnn9*'",
                "zypper --non-interactive install --oldpackage libcudnn9-cuda-12=9.9.0.52-1"
                " libcudnn9-devel-cuda-12=9.9.0.52-1",
            ],
        ),
    ],
)
def test_a_held_package_is_released_by_its_own_manager(
    system: System, manager: str, lock: tuple[str, str], commands: list[str]
) -> None:
    runtime = Package(
        name="libcudnn9-cuda-12",
        version="9.14.0.64-1",
        manager=manager,
        held=True,
        held_by=lock[0],
        lock=lock[1],
    )
    dev = Package(name="libcudnn9-devel-cuda-12", version="9.9.0.52-1", manager=manager)
    system = replace(system, is_root=True)
    machine = replace(healthy(), system=system, packages=(runtime, dev))
    (remedy,) = finding(machine, "apt-version-pin-conflict").remedies
    assert list(remedy.commands) == commands


def test_repository_of_another_release() -> None:
    wrong = Repository(
        manager="apt", url="https://r.example/ubuntu2004/x86_64", distro="ubuntu2004"
    )
    assert problems(replace(healthy(), repositories=(wrong,))) == ["apt-wrong-distro-repo"]
    right = replace(wrong, distro="ubuntu2204")
    assert problems(replace(healthy(), repositories=(right,))) == []


def test_packages_of_two_vendors() -> None:
    theirs = Package(name="nvidia-cudnn", version="8.9.2.26", manager="dpkg")
    ours = Package(name="libcudnn9-cuda-12", version="9.14.0.64-1", manager="dpkg")
    assert problems(replace(healthy(), packages=(theirs, ours))) == ["apt-repos-mixed"]
    assert problems(replace(healthy(), packages=(ours,))) == []


def test_layout_change_is_a_note() -> None:
    dev = Package(name="libcudnn9-dev-cuda-12", version="9.10.0.56-1", manager="dpkg")
    assert finding(replace(healthy(), packages=(dev,)), "package-layout-change").severity == "info"


def test_two_gpus_one_of_them_too_old() -> None:
    gpus = (
        Gpu(name="NVIDIA H200", compute_capability="9.0"),
        Gpu(index=1, name="Tesla V100", compute_capability="7.0"),
    )
    machine = replace(healthy("9.14.0"), gpus=gpus)
    assert "Tesla V100" in finding(machine, "gpu-too-old-for-cudnn").title
