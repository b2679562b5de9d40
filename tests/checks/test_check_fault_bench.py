"""The twelve faults of the fault bench, each beside its healthy twin."""

from __future__ import annotations

import msgspec
import pytest
from check_builders import (
    CUDA12,
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

from cudnn_doctor.machine.model import (
    CacheEntry,
    Distribution,
    Header,
    Library,
    Machine,
    RecordProblem,
)

replace = msgspec.structs.replace


def on_path(machine: Machine, folder: str) -> Machine:
    return replace(machine, environ={"LD_LIBRARY_PATH": folder})


def test_the_healthy_machine_is_silent() -> None:
    report = judge(healthy())
    assert [f for f in report.findings if f.severity != "info"] == []


def test_healthy_without_a_gpu_is_silent_with_no_gpu() -> None:
    machine = replace(healthy("9.28.0"), gpus=(), pci=(), frameworks=(), environments=())
    machine = replace(
        machine, libraries=tuple(x for x in machine.libraries if "libcuda" not in x.path)
    )
    machine = change(machine, "loader", cache=())
    assert problems(machine, no_gpu=True) == []


def test_1_a_sublibrary_is_missing() -> None:
    machine = without_files(healthy(), f"{WHEEL}/libcudnn_heuristic.so.9")
    assert problems(machine) == ["cudnn-install-incomplete"]
    found = finding(machine, "cudnn-install-incomplete")
    assert found.culprit == f"{WHEEL}/libcudnn_heuristic.so.9"
    assert found.remedies[0].commands == (
        "/venv/bin/python -m pip install --force-reinstall --no-deps nvidia-cudnn-cu12==9.10.2.21",
    )


def test_2_a_sublibrary_of_another_release() -> None:
    machine = replace_library(healthy(), f"{WHEEL}/libcudnn_ops.so.9", version="9.8.0")
    copy = (machine.copies or ())[0]
    versions = {**copy.file_versions, "libcudnn_ops.so.9": "9.8.0"}
    machine = replace(machine, copies=(replace(copy, file_versions=versions, version=None),))
    assert problems(machine)[0] == "cudnn-mixed-in-one-dir"
    assert finding(machine, "cudnn-mixed-in-one-dir").culprit == f"{WHEEL}/libcudnn_ops.so.9"


def test_2_a_whole_library_that_is_not_the_wheels() -> None:
    """Its release is not told by anything, RECORD has another size."""
    path = f"{WHEEL}/libcudnn_cnn.so.9"
    machine = replace_library(healthy(), path, version=None, size=900)
    copy = (machine.copies or ())[0]
    versions = {k: v for k, v in copy.file_versions.items() if k != "libcudnn_cnn.so.9"}
    problem = RecordProblem(path=path, problem="size", expected="1000", found="900")
    wheel = replace(_cudnn("9.10.2.21"), record_checked=9, record_problems=(problem,))
    machine = replace(
        machine,
        copies=(replace(copy, file_versions=versions),),
        environments=(environment(wheel),),
    )
    assert problems(machine) == ["cudnn-mixed-in-one-dir"]


def test_3_a_copy_of_an_unknown_release_on_the_path() -> None:
    machine = with_copy(healthy(), "/opt/cudnn/lib", "9.1.0", kind="prefix")
    unknown = tuple(
        replace(x, version=None, size=900) if x.path.startswith("/opt/cudnn") else x
        for x in machine.libraries
    )
    copies = (*(healthy().copies or ()), replace((machine.copies or ())[-1], version=None))
    copies = (*copies[:-1], replace(copies[-1], file_versions={}))
    machine = on_path(replace(machine, libraries=unknown, copies=copies), "/opt/cudnn/lib")
    assert problems(machine) == ["ld-library-path-shadow"]
    same = tuple(replace(x, size=1000) if x.size == 900 else x for x in unknown)
    assert problems(replace(machine, libraries=same)) == []


def test_3_ld_library_path_shadows_the_wheel() -> None:
    machine = on_path(
        with_copy(healthy(), "/opt/cudnn/lib", "9.1.0", kind="prefix"), "/opt/cudnn/lib"
    )
    assert problems(machine) == ["ld-library-path-shadow"]
    found = finding(machine, "ld-library-path-shadow")
    assert found.remedies[0].commands == ("unset LD_LIBRARY_PATH",)


def test_3_twin_another_system_copy_that_nobody_loads() -> None:
    machine = with_copy(healthy(), SYSTEM, "9.14.0", cached=True, kind="system")
    assert problems(machine) == []


def test_3_twin_the_same_release_on_the_path() -> None:
    machine = with_copy(healthy(), "/opt/cudnn/lib", "9.10.2", kind="prefix")
    assert problems(on_path(machine, "/opt/cudnn/lib")) == []


def test_3_a_shim_with_rpath_keeps_its_own_parts_its_graph_library_does_not() -> None:
    bare = replace(healthy("9.24.0"), frameworks=(), environments=(environment(_cudnn("9.24.0")),))
    machine = on_path(with_copy(bare, "/opt/cudnn/lib", "9.10.2", kind="prefix"), "/opt/cudnn/lib")
    seen = str(finding(machine, "ld-library-path-shadow").seen)
    assert "libcudnn_heuristic.so.9 are 9.10.2" in seen
    assert "libcudnn_ops.so.9" not in seen


def test_3_a_bare_wheel_is_judged_as_opened_by_its_path() -> None:
    bare = replace(healthy(), frameworks=(), environments=(environment(_cudnn("9.10.2.21")),))
    machine = on_path(with_copy(bare, "/opt/cudnn/lib", "9.1.0", kind="prefix"), "/opt/cudnn/lib")
    assert problems(machine) == ["ld-library-path-shadow"]


def _cudnn(version: str) -> Distribution:
    return Distribution(name="nvidia-cudnn-cu12", version=version, location=SITE)


def stray(machine: Machine) -> Machine:
    """A library of 9.23 alone in a folder of LD_LIBRARY_PATH."""
    library = cudnn_library("/opt/stray", "engines_tensor_ir", "9.23.2")
    return on_path(replace(machine, libraries=(*machine.libraries, library)), "/opt/stray")


def test_4_a_stray_sublibrary_is_harmless_to_a_release_that_does_not_ask_for_it() -> None:
    assert problems(stray(healthy("9.10.2"))) == []


def test_4_a_stray_sublibrary_is_fatal_to_a_release_that_asks_for_it() -> None:
    machine = stray(healthy("9.20.0"))
    assert problems(machine)[0] == "cudnn-wheel-incomplete"


def test_5_a_truncated_file() -> None:
    path = f"{WHEEL}/libcudnn_engines_precompiled.so.9"
    machine = replace_library(healthy(), path, status="truncated", size=4096)
    problem = RecordProblem(path=path, problem="size", expected="1000", found="4096")
    wheel = replace(_cudnn("9.10.2.21"), record_checked=9, record_problems=(problem,))
    machine = replace(machine, environments=(environment(wheel),))
    assert problems(machine) == ["cudnn-file-damaged"]
    assert finding(machine, "wheel-files-missing").caused_by == "cudnn-file-damaged"


def test_6_a_file_of_the_wrong_architecture() -> None:
    machine = replace_library(healthy(), f"{WHEEL}/libcudnn_cnn.so.9", machine="aarch64")
    assert problems(machine)[0] == "cudnn-wrong-architecture"


def test_6_twin_libraries_of_a_cross_toolkit_elsewhere_are_no_error() -> None:
    other = cudnn_library("/usr/aarch64-linux-gnu/lib", "ops", "9.10.2", machine="aarch64")
    report = judge(replace(healthy(), libraries=(*healthy().libraries, other)))
    assert report.worst == "warning"


def test_7_two_wheels_over_one_folder() -> None:
    other = Distribution(name="nvidia-cudnn-cu13", version="9.19.0.56", location=SITE)
    distributions = (*environment().distributions, other)
    machine = replace(healthy(), environments=(environment(*distributions),))
    assert problems(machine) == ["cudnn-wheel-clobbered"]
    assert finding(machine, "cudnn-wheel-clobbered").remedies[0].commands == (
        "/venv/bin/python -m pip uninstall -y nvidia-cudnn-cu13",
        "/venv/bin/python -m pip install --force-reinstall --no-deps nvidia-cudnn-cu12==9.10.2.21",
    )


def test_7_twin_wheels_of_different_majors_share_no_library() -> None:
    old = Distribution(
        name="nvidia-cudnn-cu11",
        version="8.9.6.50",
        location=SITE,
        files=("nvidia/cudnn/lib/libcudnn.so.8",),
    )
    new = replace(_cudnn("9.10.2.21"), files=("nvidia/cudnn/lib/libcudnn.so.9",))
    machine = replace(healthy(), environments=(environment(old, new),))
    assert problems(machine) == []


def test_8_cublas_is_unreachable() -> None:
    machine = without_files(healthy(), *(x.path for x in CUDA12 if "cublas" in x.path))
    assert problems(machine) == ["other-cuda-lib-missing"]
    found = finding(machine, "other-cuda-lib-missing")
    assert found.culprit == "libcublasLt.so.12"
    assert found.remedies[0].commands == ("/venv/bin/python -m pip install nvidia-cublas-cu12",)


def test_8_nvrtc_is_unreachable() -> None:
    machine = without_files(healthy(), *(x.path for x in CUDA12 if "nvrtc" in x.path))
    assert problems(machine) == ["libnvrtc-missing"]
    assert finding(machine, "libnvrtc-missing").severity == "error"


def test_8_only_another_major_is_there() -> None:
    machine = without_files(healthy(), *(x.path for x in CUDA12 if "cublas" in x.path))
    other = plain_library("/usr/local/cuda-13.0/lib64/libcublasLt.so.13", "13.0.0")
    machine = replace(machine, libraries=(*machine.libraries, other))
    assert problems(machine) == ["cudnn-cuda-major-mismatch"]


def test_8_twin_a_system_toolkit_of_the_same_major_in_the_cache() -> None:
    machine = without_files(healthy(), *(x.path for x in CUDA12))
    folder = "/usr/local/cuda-12.8/lib64"
    system = [plain_library(f"{folder}/{x.path.rpartition('/')[2]}", x.version) for x in CUDA12]
    cache = tuple(CacheEntry(soname=x.soname or "", path=x.path) for x in system)
    machine = replace(machine, libraries=(*machine.libraries, *system))
    machine = change(machine, "loader", cache=(*(machine.loader.cache or ()), *cache))
    assert problems(machine) == []


def test_9_cudnn_8_on_the_path_beside_9() -> None:
    machine = with_copy(healthy(), "/opt/cudnn8/lib", "8.9.7", kind="prefix")
    assert problems(machine) == []
    assert problems(on_path(machine, "/opt/cudnn8/lib")) == ["cudnn-major-mismatch"]


def test_9_twin_a_toolkits_folder_with_an_old_cudnn_in_it() -> None:
    machine = with_copy(healthy(), "/usr/local/cuda/lib64", "8.9.7", kind="toolkit")
    assert problems(on_path(machine, "/usr/local/cuda/lib64")) == []


def test_10_header_of_another_release_beside_the_library() -> None:
    header = Header(path=f"{SITE}/nvidia/cudnn/include/cudnn_version.h", version="8.9.7")
    assert problems(replace(healthy(), headers=(header,))) == ["header-library-mismatch"]


@pytest.mark.parametrize("release", ["8.9.7", "9.10.2"])
def test_10_a_prefix_whose_lib_leads_into_the_wheel(release: str) -> None:
    linked = tuple(
        replace(library, path=library.path.replace(WHEEL, "/opt/root/lib"))
        for library in healthy().libraries
        if library.path.startswith(WHEEL)
    )
    header = Header(path="/opt/root/include/cudnn_version.h", version=release)
    machine = replace(healthy(), libraries=(*healthy().libraries, *linked), headers=(header,))
    wanted = [] if release == "9.10.2" else ["header-library-mismatch"]
    assert problems(machine) == wanted


def test_10_twin_the_right_header_and_one_elsewhere() -> None:
    headers = (
        Header(path=f"{SITE}/nvidia/cudnn/include/cudnn_version.h", version="9.10.2"),
        Header(path="/opt/src/cudnn/include/cudnn_version.h", version="8.9.7"),
    )
    assert problems(replace(healthy(), headers=headers)) == []


def test_11_a_dangling_shim_on_the_path() -> None:
    link = Library(
        path="/opt/cudnn/lib/libcudnn.so.9", link="libcudnn.so.9.10.2", status="dangling"
    )
    machine = on_path(replace(healthy(), libraries=(*healthy().libraries, link)), "/opt/cudnn/lib")
    assert problems(machine) == ["cudnn-dangling-link"]
    assert finding(machine, "cudnn-dangling-link").severity == "error"


def test_11_twin_a_dangling_link_nobody_looks_at_is_a_warning() -> None:
    link = Library(path="/opt/old/lib/libcudnn.so.9", link="libcudnn.so.9.1.0", status="dangling")
    machine = replace(healthy(), libraries=(*healthy().libraries, link))
    assert finding(machine, "cudnn-dangling-link").severity == "warning"


def test_12_no_cudnn_where_a_framework_needs_it() -> None:
    machine = without_files(healthy(), *(x.path for x in cudnn_libraries(WHEEL, "9.10.2")))
    torch = Distribution(name="torch", version="2.8.0", location=SITE)
    machine = replace(machine, copies=(), environments=(environment(torch),))
    found = problems(machine)
    assert found == ["framework-deps-not-installed"]
    required = replace(torch, requires=("nvidia-cudnn-cu12==9.10.2.21; sys_platform == 'linux'",))
    machine = replace(machine, environments=(environment(required),))
    assert finding(machine, "framework-deps-not-installed").remedies[0].commands == (
        "/venv/bin/python -m pip install nvidia-cudnn-cu12==9.10.2.21",
    )


def test_12_twin_an_environment_without_any_framework_needs_none() -> None:
    machine = replace(healthy(), libraries=(), copies=(), frameworks=(), environments=())
    assert problems(machine) == []


def test_torch_gets_the_wheels_shim_with_the_systems_sublibraries() -> None:
    """As on the H200 machine: distro 9.14.0, wheel 9.19.0, the distro's folder on the path."""
    machine = with_copy(healthy("9.19.0"), SYSTEM, "9.14.0", cached=True, kind="system")
    assert problems(machine) == []
    found = finding(on_path(machine, SYSTEM), "ld-library-path-shadow")
    assert found.severity == "error"
    assert "9.14.0" in found.title
    assert any("9.19.0" in evidence.what for evidence in found.seen)


def test_copy_of_counts_its_files() -> None:
    copy = copy_of(cudnn_libraries(WHEEL, "9.10.2"), "9.10.2", environment=PREFIX)
    assert len(copy.files) == len(copy.file_versions) == 8
