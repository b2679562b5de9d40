"""Every other rule: at least one machine that has the fault and its healthy twin."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from check_builders import (
    MATRIX,
    PREFIX,
    SITE,
    SYSTEM,
    WHEEL,
    change,
    copy_of,
    cudnn_libraries,
    cudnn_library,
    environment,
    finding,
    healthy,
    judge,
    plain_library,
    problems,
    replace_library,
    with_copy,
    without_files,
)

from cudnn_doctor.checks.model import Finding
from cudnn_doctor.checks.run import run_checks
from cudnn_doctor.machine.loads import Consumer, Load, LoadPlan
from cudnn_doctor.machine.model import (
    CacheEntry,
    CudnnCopy,
    DeviceNode,
    DiskSpace,
    Distribution,
    Driver,
    Gpu,
    Header,
    Library,
    Machine,
    MigInstance,
    Package,
    PciDevice,
    Repository,
    Requirement,
)
from cudnn_doctor.matrix.model import FrameworkNeed

replace = msgspec.structs.replace


def framework(machine: Machine, **fields: Any) -> Machine:
    return replace(machine, frameworks=(replace(machine.frameworks[0], **fields),))


def gpu(machine: Machine, **fields: Any) -> Machine:
    return replace(machine, gpus=(replace((machine.gpus or ())[0], **fields),))


def no_gpu_answers(machine: Machine, **driver: Any) -> Machine:
    return replace(machine, gpus=(), driver=Driver(**driver))


# -- system


def test_musl() -> None:
    assert problems(change(healthy(), "system", libc="musl", distro_id="alpine"))[0] == "musl-libc"


def test_glibc_too_old_by_what_the_file_needs() -> None:
    machine = replace_library(healthy(), f"{WHEEL}/libcudnn_cnn.so.9", glibc_needed="2.27")
    assert problems(machine) == []
    assert "glibc-too-old" in problems(change(machine, "system", libc_version="2.17"))


def test_tmp_full_names_a_disk_with_room() -> None:
    full = DiskSpace(path="/tmp", free=100 << 20, filesystem="tmpfs")
    disks = (full, DiskSpace(path="/home/ada", free=50 << 30))
    machine = change(healthy(), "system", tmpdir="/tmp", disks=disks)
    assert problems(machine) == ["tmp-full"]
    assert "export TMPDIR=/home/ada/tmp" in finding(machine, "tmp-full").remedies[0].commands
    roomy = (replace(full, free=9 << 30), disks[1])
    assert problems(change(machine, "system", disks=roomy)) == []


def test_disk_full() -> None:
    disks = (DiskSpace(path="/tmp", free=9 << 30), DiskSpace(path="/venv", free=0))
    assert problems(change(healthy(), "system", tmpdir="/tmp", disks=disks)) == ["disk-full"]


def test_read_only_environment_is_a_note() -> None:
    machine = change(healthy(), "system", disks=(DiskSpace(path="/venv", read_only=True),))
    assert finding(machine, "read-only-target").severity == "info"


# -- driver and devices


def test_no_gpu_is_an_error_unless_none_is_meant_to_be_there() -> None:
    machine = replace(no_gpu_answers(healthy()), pci=())
    assert "no-nvidia-gpu" in problems(machine)
    assert "no-nvidia-gpu" not in problems(machine, no_gpu=True)


def test_nouveau_holds_the_gpu() -> None:
    pci = (PciDevice(address="0000:01:00.0", class_code="0x030000", driver="nouveau"),)
    machine = replace(no_gpu_answers(healthy()), pci=pci)
    assert "driver-not-installed" in problems(machine)
    found = finding(machine, "driver-not-installed")
    assert found.culprit == "nouveau"
    assert found.remedies[0].commands == ("sudo ubuntu-drivers install",)


def test_a_gpu_passed_through_is_told_apart() -> None:
    pci = (PciDevice(address="0000:01:00.0", class_code="0x030000", driver="vfio-pci"),)
    machine = replace(no_gpu_answers(healthy()), pci=pci)
    assert "vfio-pci" in finding(machine, "driver-not-installed").title


def test_kernel_module_and_libraries_differ() -> None:
    machine = change(healthy(), "driver", library_version="580.105.08")
    assert problems(machine) == ["driver-user-kernel-mismatch"]


@pytest.mark.parametrize(("driver", "ids"), [("470.86", ["driver-too-old"]), ("525.60.13", [])])
def test_driver_floor(driver: str, ids: list[str]) -> None:
    version = {"version": driver, "kernel_version": driver, "library_version": driver}
    machine = change(healthy(), "driver", cuda="12.0" if not ids else "11.4", **version)
    assert [id for id in problems(machine) if id == "driver-too-old"] == ids


def test_uvm_is_not_loaded() -> None:
    assert problems(change(healthy(), "driver", uvm_loaded=False)) == ["uvm-module-wedged"]


def test_fabric_manager() -> None:
    stopped = change(healthy(), "driver", fabric_manager="stopped")
    assert problems(stopped) == ["fabricmanager-missing"]
    running = change(healthy(), "driver", fabric_manager="running")
    assert problems(running) == []
    other = change(running, "driver", fabric_manager_version="570.10.01")
    assert problems(other) == ["fabricmanager-missing"]


def nodes(**fields: Any) -> tuple[DeviceNode, ...]:
    usual = {"exists": True, "readable": True, "mode": "crw-rw-rw-"}
    paths = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0")
    return tuple(DeviceNode(path=path, **{**usual, **fields}) for path in paths)


def test_device_nodes_missing() -> None:
    machine = replace(healthy(), device_nodes=nodes(exists=False, readable=None))
    assert problems(machine) == ["device-nodes-missing"]


def test_permission_by_mode_by_selinux_by_cgroup() -> None:
    by_mode = replace(
        healthy(), device_nodes=nodes(readable=False, mode="crw-rw----", owner="root:video")
    )
    assert problems(by_mode) == ["permission-denied"]
    command = finding(by_mode, "permission-denied").remedies[0].commands[0]
    assert command == "sudo usermod -aG video ada"
    denied = replace(healthy(), device_nodes=nodes(readable=False, error="EACCES"))
    assert problems(change(denied, "system", selinux="enforcing")) == ["selinux-denies-gpu"]
    revoked = replace(healthy(), device_nodes=nodes(readable=False, error="EPERM"))
    assert problems(change(revoked, "system", container="docker")) == ["cgroup-device-revoked"]


def test_container_started_without_the_gpu() -> None:
    machine = no_gpu_answers(healthy(), kernel_version="580.95.05")
    machine = replace(machine, device_nodes=nodes(exists=False, readable=None), pci=None)
    machine = change(machine, "system", container="docker", container_gpu=False)
    assert problems(machine) == ["container-without-gpu"]


def test_docker_desktop_context() -> None:
    machine = change(healthy(), "system", docker_context="desktop-linux")
    assert problems(machine) == ["docker-desktop-context"]
    assert problems(change(healthy(), "system", docker_context="default")) == []


# -- GPU


def test_pascal_with_a_cudnn_that_dropped_it() -> None:
    old = {"name": "NVIDIA GeForce GTX 1080", "compute_capability": "6.1"}
    assert "gpu-too-old-for-cudnn" in problems(gpu(healthy("9.14.0"), **old))
    found = finding(gpu(healthy("9.14.0"), **old), "gpu-too-old-for-cudnn")
    assert "9.10.2" in found.remedies[0].title
    assert "gpu-too-old-for-cudnn" not in problems(gpu(healthy("9.10.2"), **old))


def test_gpu_too_old_for_the_frameworks_cuda() -> None:
    kepler = gpu(healthy(), name="Tesla K80", compute_capability="3.7")
    assert {"gpu-too-old", "gpu-too-old-for-cudnn"} <= {f.id for f in judge(kepler).findings}


def test_gpu_too_new_for_the_build() -> None:
    blackwell = gpu(healthy(), name="GeForce RTX 5090", compute_capability="12.0")
    old = framework(blackwell, version="1.13.1", cuda="11.7", cudnn_built=None)
    assert "gpu-too-new-for-build" in problems(old)
    assert "gpu-too-new-for-build" not in problems(blackwell)


def test_ptx_newer_than_driver() -> None:
    need = FrameworkNeed(
        framework="torch",
        distribution="torch",
        versions="==2.8.0",
        cuda_built="12.8",
        cuda_major=12,
        cc=("7.5", "8.0+PTX"),
    )
    matrix = replace(MATRIX, frameworks=(need,))
    ids = {f.id for f in run_checks(change(healthy(), "driver", cuda="12.2"), matrix).findings}
    assert "ptx-newer-than-driver" in ids
    ids = {f.id for f in run_checks(healthy(), matrix).findings}
    assert "ptx-newer-than-driver" not in ids


def test_mig() -> None:
    empty = gpu(healthy(), mig_enabled=True)
    assert problems(empty) == ["mig-one-instance"]
    instance = MigInstance(uuid="MIG-1", profile="1g.18gb")
    cut = gpu(healthy(), mig_enabled=True, mig_instances=(instance,))
    assert finding(cut, "mig-one-instance").severity == "info"


@pytest.mark.parametrize(
    ("value", "severity"),
    [
        ("0", None),
        ("0,1", None),
        ("3", "error"),
        ("-1", "warning"),
        ("GPU-", None),
        ("", "warning"),
    ],
)
def test_cuda_visible_devices(value: str, severity: str | None) -> None:
    machine = replace(healthy(), environ={"CUDA_VISIBLE_DEVICES": value})
    found = [f.severity for f in judge(machine).findings if f.id == "gpu-hidden"]
    assert found == ([severity] if severity else [])


def test_compute_mode_prohibited() -> None:
    assert problems(gpu(healthy(), compute_mode="prohibited")) == ["gpu-hidden"]


def test_gpu_memory_nearly_full() -> None:
    assert problems(gpu(healthy(), memory_free=100 << 20)) == ["out-of-memory-masked"]


def test_cpu_build_beside_a_gpu() -> None:
    machine = framework(healthy(), version="2.8.0+cpu", cuda="cpu", binaries=(), pins=())
    assert "cpu-only-wheel" in problems(machine)
    assert "cpu-only-wheel" not in problems(machine, no_gpu=True)


def ort(*distributions: str, asked: bool = False) -> Finding:
    """The finding about a CPU build of onnxruntime beside a GPU."""
    machine = framework(
        healthy(), name="onnxruntime", distribution="onnxruntime", cuda="cpu", binaries=(), pins=()
    )
    known = tuple(Distribution(name=name, version="1.22.0") for name in distributions)
    place = msgspec.structs.replace(machine.environments[0], distributions=known)
    wishes = (Requirement(name="onnxruntime-gpu", file="requirements.txt", line=1),)
    machine = msgspec.structs.replace(machine, environments=(place,))
    machine = change(machine, "project", requirements=wishes if asked else ())
    return finding(machine, "cpu-only-wheel")


def test_cpu_onnxruntime_is_a_note_until_the_gpu_build_is_wanted() -> None:
    assert ort("onnxruntime").severity == "info"
    assert ort("onnxruntime", asked=True).severity == "warning"
    both = ort("onnxruntime", "onnxruntime-gpu")
    assert both.severity == "error"
    assert "uninstall" in both.remedies[0].commands[0]


def test_jetson() -> None:
    jetson = change(healthy(), "driver", jetpack="R36.4.0")
    system = CudnnCopy(folder=SYSTEM, major=9, version="9.3.0", kind="system")
    machine = replace(jetson, partial=True, copies=(system,), frameworks=(_ort("1.18.0", "8.9.2"),))
    assert "jetson-package-mismatch" in problems(machine)


def _ort(version: str, built: str | None = None) -> Any:
    return replace(
        healthy().frameworks[0],
        name="onnxruntime",
        distribution="onnxruntime-gpu",
        version=version,
        cudnn_built=built,
        pins=(),
        binaries=(),
    )


# -- CUDA libraries


def test_stub_of_libcuda_on_the_path() -> None:
    machine = replace(
        healthy(), environ={"LD_LIBRARY_PATH": "/usr/local/cuda/lib64/stubs:/opt/x/lib"}
    )
    assert problems(machine) == ["libcuda-stub-shadow"]
    command = finding(machine, "libcuda-stub-shadow").remedies[0].commands[0]
    assert command == "export LD_LIBRARY_PATH=/opt/x/lib"


def test_compat_libcuda_on_a_consumer_gpu() -> None:
    compat = {"LD_LIBRARY_PATH": "/usr/local/cuda/compat"}
    geforce = gpu(healthy(), name="NVIDIA GeForce RTX 4090", compute_capability="8.9")
    assert problems(replace(geforce, environ=compat)) == ["compat-libcuda-on-geforce"]
    assert problems(replace(healthy(), environ=compat)) == []


def test_wsl_without_the_unversioned_libcuda() -> None:
    cache = (CacheEntry(soname="libcuda.so.1", path="/usr/lib/wsl/lib/libcuda.so.1"),)
    wsl = change(change(healthy(), "system", wsl=True), "loader", cache=cache)
    assert problems(wsl) == []
    old = with_copy(wsl, "/opt/cudnn8/lib", "8.9.7", kind="prefix")
    assert "libcuda-unversioned-missing" in problems(old)


def plan_with(*companions: Load) -> LoadPlan:
    return LoadPlan(
        consumer=Consumer(name="torch", environment=PREFIX, major=9, cuda="12"),
        uses_cudnn=True,
        shim=Load(name="libcudnn.so.9", path=f"{WHEEL}/libcudnn.so.9", version="9.10.2"),
        companions=companions,
        folder=WHEEL,
    )


def ids_with(plan: LoadPlan, machine: Machine | None = None) -> set[str]:
    report = run_checks(machine or healthy(), MATRIX, plans=(plan,))
    return {f.id for f in report.findings if f.severity != "info"}


def test_cublas_and_cublaslt_of_different_releases() -> None:
    own = f"{SITE}/nvidia/cublas/lib"
    first = Load(name="libcublas.so.12", path=f"{own}/libcublas.so.12", version="12.8.4.1")
    foreign = Load(
        name="libcublasLt.so.12",
        path="/usr/local/cuda/lib64/libcublasLt.so.12",
        version="12.1.0.26",
        via="ld_library_path",
    )
    assert ids_with(plan_with(first, foreign)) == {"cublas-shadowed"}
    fitting = replace(foreign, version="12.8.4.1")
    assert ids_with(plan_with(first, fitting)) == set()


def test_only_a_note_where_nvjitlink_is_missing() -> None:
    lost = Load(name="libcublasLt.so.13", via="missing")
    assert ids_with(plan_with(lost)) == {"cudnn-cuda-major-mismatch"}
    assert ids_with(plan_with(replace(lost, name="libnvJitLink.so.13"))) == set()


def test_what_a_shadow_of_another_cuda_lacks_is_its_consequence() -> None:
    machine = healthy()
    other = cudnn_libraries("/opt/cudnn/lib", "9.28.1", "13")
    machine = replace(
        machine,
        libraries=(*machine.libraries, *other),
        copies=(*(machine.copies or ()), copy_of(other, "9.28.1", "13", kind="prefix")),
        environ={"LD_LIBRARY_PATH": "/opt/cudnn/lib"},
    )
    found = {f.id: f for f in judge(machine).findings if f.severity == "error"}
    assert not found.pop("ld-library-path-shadow").caused_by
    assert set(found) == {"cudnn-cuda-major-mismatch", "libnvrtc-missing"}
    assert {f.caused_by for f in found.values()} == {"ld-library-path-shadow"}
    assert "built for CUDA 13" in found["cudnn-cuda-major-mismatch"].why


def test_an_older_nvrtc_on_the_path() -> None:
    own = Distribution(name="nvidia-cuda-nvrtc-cu12", version="12.8.93", location=SITE)
    env = environment(*environment().distributions, own)
    machine = replace(healthy(), environments=(env,))
    foreign = Load(
        name="libnvrtc.so.12",
        path="/usr/local/cuda/lib64/libnvrtc.so.12",
        version="12.1.105",
        via="ld_library_path",
    )
    assert ids_with(plan_with(foreign), machine) == {"libnvrtc-shadowed-old"}
    assert ids_with(plan_with(replace(foreign, version="12.9.86")), machine) == set()


def test_nvrtc_under_a_hashed_name_beside_a_bundled_cudnn_8() -> None:
    folder = f"{SITE}/torch/lib"
    hashed = plain_library(f"{folder}/libnvrtc-672ee683.so.11.2")
    copy = CudnnCopy(folder=folder, major=8, version="8.7.0", kind="bundled", private=True)
    machine = replace(
        healthy(),
        libraries=(*healthy().libraries, hashed),
        copies=(*(healthy().copies or ()), copy),
    )
    assert "libnvrtc-missing" in problems(machine)
    linked = plain_library(f"{folder}/libnvrtc.so")
    assert problems(replace(machine, libraries=(*machine.libraries, linked))) == []


def test_ctranslate2_and_torch_in_one_process() -> None:
    torch = healthy().frameworks[0]
    guest = replace(torch, name="ctranslate2", distribution="ctranslate2", version="4.5.0")
    guest = replace(guest, binaries=(), pins=(), cudnn_built=None)
    machine = with_copy(healthy(), SYSTEM, "9.14.0", cached=True, kind="system")
    machine = replace(machine, frameworks=(torch, guest))
    assert problems(machine) == ["mixed-cudnn-copies"]
    same = with_copy(healthy(), SYSTEM, "9.10.2", cached=True, kind="system")
    assert problems(replace(same, frameworks=(torch, guest))) == []


def test_parts_of_two_copies_by_the_cache() -> None:
    """A system copy without one part, which the cache has from elsewhere."""
    machine = with_copy(healthy(), SYSTEM, "9.14.0", cached=True, kind="system")
    machine = without_files(machine, f"{SYSTEM}/libcudnn_adv.so.9")
    stray = cudnn_library("/opt/other/lib", "adv", "9.1.0")
    cache = tuple(e for e in machine.loader.cache or () if "libcudnn_adv" not in e.soname)
    entry = CacheEntry(soname="libcudnn_adv.so.9", path=stray.path)
    machine = change(machine, "loader", cache=(*cache, entry))
    machine = replace(machine, libraries=(*machine.libraries, stray))
    found = judge(machine).findings
    assert next(f.id for f in found if f.severity == "error") == "cudnn-install-incomplete"
    mixed = next(f for f in found if f.id == "mixed-cudnn-copies")
    assert mixed.caused_by == "cudnn-install-incomplete"


def test_extension_of_another_cuda_major() -> None:
    torch = healthy().frameworks[0]
    guest = replace(torch, name="sgl-kernel", distribution="sgl-kernel", version="0.3", cuda="13")
    guest = replace(guest, binaries=(), pins=(), cudnn_built=None)
    assert "cuda-major-mismatch" in problems(replace(healthy(), frameworks=(torch, guest)))
    fitting = replace(guest, cuda="12.4")
    assert "cuda-major-mismatch" not in problems(replace(healthy(), frameworks=(torch, fitting)))


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
    ort = replace(_ort("1.20.1"), binaries=(f"{SITE}/onnxruntime/capi/x.so",))
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
