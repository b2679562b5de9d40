"""Rules about CUDA libraries beside cuDNN: each with the fault and its healthy twin."""

from __future__ import annotations

import msgspec
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
    gpu,
    healthy,
    judge,
    plain_library,
    problems,
    with_copy,
    without_files,
)

from cudnn_doctor.checks.run import run_checks
from cudnn_doctor.machine.loads import Consumer, Load, LoadPlan
from cudnn_doctor.machine.model import (
    CacheEntry,
    CudnnCopy,
    Distribution,
    Machine,
)

replace = msgspec.structs.replace


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
