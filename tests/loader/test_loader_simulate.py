"""The simulation on described machines: schemes, releases, faults and what is only assumed."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudnn_doctor.machine import opens
from cudnn_doctor.machine.loader import consumers, simulate, simulate_all
from cudnn_doctor.machine.loads import Consumer, Load, LoadPlan
from cudnn_doctor.machine.model import (
    CacheEntry,
    CudnnCopy,
    Environment,
    Framework,
    Library,
    LoaderConfig,
    Machine,
    System,
)

SITE = "/v/lib/python3.12/site-packages"
WHEEL = f"{SITE}/nvidia/cudnn/lib"
SYSTEM = "/usr/lib/x86_64-linux-gnu"


def wheel(version: str, cuda: str = "12", **more: object) -> CudnnCopy:
    major = int(version.split(".")[0])
    fields = {"folder": WHEEL, "kind": "wheel", "environment": "/v", "cuda": cuda, **more}
    return CudnnCopy(version=version, major=major, **fields)  # type: ignore[arg-type]


def system(version: str, folder: str = SYSTEM) -> CudnnCopy:
    major = int(version.split(".")[0])
    return CudnnCopy(folder=folder, kind="system", version=version, major=major, cuda="12")


def described(
    framework: str, version: str, *copies: CudnnCopy, path: str = "", cuda: str = "12.8"
) -> Machine:
    environ = {"LD_LIBRARY_PATH": path} if path else {}
    own = Framework(name=framework, version=version, environment="/v", cuda=cuda)
    return Machine(partial=True, frameworks=(own,), copies=copies, environ=environ)


def plan_of(machine: Machine) -> LoadPlan:
    return simulate(machine, consumers(machine)[0])


def part(plan: LoadPlan, name: str) -> Load | None:
    return next((x for x in plan.sublibraries if x.name.startswith(f"libcudnn_{name}.so")), None)


def folders(plan: LoadPlan) -> set[str | None]:
    return {x.path.rpartition("/")[0] if x.path else None for x in plan.sublibraries}


def test_torch_gets_its_wheel() -> None:
    plan = plan_of(described("torch", "2.9.1", wheel("9.10.2.21"), system("9.14.0")))
    assert plan.shim is not None
    assert (plan.folder, plan.shim.via, plan.shim.version) == (WHEEL, "rpath", "9.10.2.21")
    assert "RPATH $ORIGIN/../../nvidia/cudnn/lib" in plan.shim.because
    assert folders(plan) == {WHEEL}
    assert not plan.certain


def test_ld_library_path_swaps_the_parts_behind_a_runpath_shim() -> None:
    plan = plan_of(described("torch", "2.11.0", wheel("9.19.0.56"), system("9.14.0"), path=SYSTEM))
    assert plan.shim is not None
    assert plan.folder == WHEEL
    assert folders(plan) == {SYSTEM}
    assert {x.via for x in plan.sublibraries} == {"ld_library_path"}


def test_ld_library_path_cannot_swap_behind_an_rpath_shim() -> None:
    plan = plan_of(described("torch", "2.12.0", wheel("9.24.0.43"), system("9.14.0"), path=SYSTEM))
    by_shim = {"graph", "ops", "cnn", "adv", "ext"}
    found = {x.name.removeprefix("libcudnn_").removesuffix(".so.9"): x for x in plan.sublibraries}
    assert {found[name].version for name in by_shim} == {"9.24.0.43"}
    # the graph library still has RUNPATH, so what it opens itself can be swapped
    assert found["engines_precompiled"].version == "9.14.0"


def test_exact_names_win_over_the_folder_that_is_searched_first() -> None:
    """The shim asks for .so.X.Y.Z in every folder before it asks for .so.X in any."""
    other = "/opt/same"
    names = ("libcudnn.so.9", "libcudnn_graph.so.9", "libcudnn_graph.so.9.10.2")
    same = CudnnCopy(folder=other, version="9.10.2", major=9, files=names, lacks=())
    machine = described("torch", "2.9.1", wheel("9.10.2.21"), same, path=other)
    machine = msgspec.structs.replace(machine, partial=False)
    graph = part(plan_of(machine), "graph")
    assert graph is not None
    assert graph.path == f"{other}/libcudnn_graph.so.9.10.2"


def test_tensorflow_prefers_ld_library_path_to_its_wheel() -> None:
    plan = plan_of(described("tensorflow", "2.18.0", wheel("9.3.0.75"), system("8.9.7")))
    assert plan.folder == WHEEL
    plan = plan_of(
        described("tensorflow", "2.18.0", wheel("9.3.0.75"), system("9.1.0"), path=SYSTEM)
    )
    assert plan.folder == SYSTEM


def test_jax_opens_its_wheel_by_path() -> None:
    machine = described("jax", "0.7.2", wheel("9.12.0.46"), system("9.1.0"), path=SYSTEM)
    plan = plan_of(machine)
    assert plan.shim is not None
    assert (plan.folder, plan.shim.via) == (WHEEL, "preload")
    assert "jax's own code" in plan.shim.because
    assert folders(plan) == {SYSTEM}


def test_onnxruntime_does_not_see_the_wheel() -> None:
    plan = plan_of(described("onnxruntime", "1.20.0", wheel("9.10.2.21")))
    assert plan.shim is not None
    assert (plan.shim.path, plan.shim.via) == (None, "missing")
    plan = plan_of(described("onnxruntime", "1.20.0", wheel("9.10.2.21"), system("9.5.0")))
    assert plan.folder == SYSTEM


def test_ctranslate2_has_a_shim_and_no_parts() -> None:
    plan = plan_of(described("ctranslate2", "4.5.0", wheel("9.10.2.21")))
    assert plan.folder == f"{SITE}/ctranslate2.libs"
    graph = part(plan, "graph")
    assert graph is not None
    assert graph.path is None
    assert graph.tried == (
        "libcudnn_graph.so.9.1.0",
        "libcudnn_graph.so.9.1",
        "libcudnn_graph.so.9",
        "libcudnn_graph.so",
    )


def test_who_does_not_use_cudnn() -> None:
    machine = described("cupy", "14.0.1", wheel("9.10.2.21"))
    assert [c.name for c in consumers(machine)] == ["dlopen"]
    cpu = described("torch", "2.9.1", wheel("9.10.2.21"), cuda="cpu")
    assert [c.name for c in consumers(cpu)] == ["dlopen"]
    assert simulate(cpu, Consumer(name="torch", scheme="none")).uses_cudnn is False


def test_vllm_loads_what_torch_loads() -> None:
    machine = described("torch", "2.9.1", wheel("9.10.2.21"))
    vllm = Framework(name="vllm", version="0.11.0", environment="/v")
    machine = msgspec.structs.replace(machine, frameworks=(vllm, *machine.frameworks))
    mine, torch = consumers(machine)[:2]
    assert (mine.name, mine.scheme) == ("vllm", torch.scheme)
    assert simulate(machine, mine).folder == WHEEL


@pytest.mark.parametrize(
    ("version", "asks"),
    [("9.10.2.21", False), ("9.20.0.48", True), ("9.21.0.82", True), ("9.28.1.4", True)],
)
def test_a_stray_tensor_ir_reaches_only_releases_that_ask_for_it(version: str, asks: bool) -> None:
    stray = CudnnCopy(folder="/stray", major=9, files=("libcudnn_engines_tensor_ir.so.9",))
    machine = described("torch", "2.12.0", wheel(version, "13"), stray, path="/stray", cuda="13.0")
    machine = msgspec.structs.replace(machine, partial=False)
    load = part(plan_of(machine), "engines_tensor_ir")
    assert (load is not None) == asks
    if version == "9.20.0.48":
        assert load is not None
        assert load.path == "/stray/libcudnn_engines_tensor_ir.so.9"


def test_version_8_opens_only_names_of_its_major() -> None:
    plan = plan_of(described("torch", "2.1.0", wheel("8.9.2.26")))
    assert {x.name for x in plan.sublibraries} == {
        f"libcudnn_{p}.so.8"
        for p in ("ops_infer", "ops_train", "cnn_infer", "cnn_train", "adv_infer", "adv_train")
    }
    assert all(not x.tried for x in plan.sublibraries)


def test_the_jit_flavour_has_its_own_parts() -> None:
    copy = wheel("9.24.0.43", flavour="jit", folder=f"{SITE}/nvidia/cudnn_jit/lib")
    plan = plan_of(described("nvidia-cudnn-frontend", "1.28.0", copy))
    assert plan.folder == copy.folder
    assert {x.name for x in plan.sublibraries} == {
        "libcudnn_graph.so.9",
        "libcudnn_engines_runtime_compiled.so.9",
    }


# -- machines whose files are known


def library(path: str, **more: object) -> Library:
    name = path.rpartition("/")[2]
    fields = {"real": path, "status": "ok", "machine": "x86_64", "elf_class": 64, "soname": name}
    return Library(path=path, **{**fields, **more})  # type: ignore[arg-type]


def shim(folder: str, version: str = "9.10.2", **more: object) -> list[Library]:
    parts = [
        library(
            f"{folder}/libcudnn_{p}.so.9",
            version=version,
            runpath="$ORIGIN:$ORIGIN/../../cublas/lib:$ORIGIN/../../cuda_nvrtc/lib",
            needed=opens.needed(p, (9, 10, 2)),
        )
        for p in opens.shipped((9, 10, 2))
    ]
    return [library(f"{folder}/libcudnn.so.9", version=version, runpath="$ORIGIN", **more), *parts]


def seen(*files: Library, cache: tuple[CacheEntry, ...] = (), **environ: str) -> Machine:
    return Machine(
        system=System(arch="x86_64"),
        loader=LoaderConfig(cache=cache, default_folders=("/lib64", "/usr/lib64")),
        libraries=files,
        environ=environ,
    )


def plain(machine: Machine) -> LoadPlan:
    return simulate(machine, Consumer(name="dlopen", scheme="dlopen", major=9))


def test_the_cache_is_read_by_architecture_and_before_default_folders() -> None:
    cache = (
        CacheEntry(soname="libcudnn.so.9", path="/arm/libcudnn.so.9", arch="aarch64"),
        CacheEntry(soname="libcudnn.so.9", path="/opt/c/libcudnn.so.9", arch="x86_64"),
    )
    machine = seen(*shim("/opt/c"), *shim("/usr/lib64"), *shim("/arm"), cache=cache)
    plan = plain(machine)
    assert plan.shim is not None
    assert (plan.folder, plan.shim.via, plan.certain) == ("/opt/c", "cache", True)


def test_a_foreign_file_is_passed_over_and_told() -> None:
    foreign = library("/a/libcudnn.so.9", machine="aarch64")
    plan = plain(seen(foreign, *shim("/b"), LD_LIBRARY_PATH="/a:/b"))
    assert plan.shim is not None
    assert plan.shim.path == "/b/libcudnn.so.9"
    assert plan.shim.tried == ("/a/libcudnn.so.9 (aarch64, skipped)",)
    assert "entry 2" in plan.shim.because


def test_a_truncated_file_stops_the_search() -> None:
    cut = library("/a/libcudnn.so.9", status="truncated")
    plan = plain(seen(cut, *shim("/b"), LD_LIBRARY_PATH="/a:/b"))
    assert plan.shim is not None
    assert (plan.shim.path, plan.shim.problem) == ("/a/libcudnn.so.9", "is truncated")
    assert plan.sublibraries == ()


def test_a_dangling_link_is_passed_over() -> None:
    gone = Library(path="/a/libcudnn.so.9", link="libcudnn.so.9.1.0", status="dangling")
    plan = plain(seen(gone, *shim("/b"), LD_LIBRARY_PATH="/a:/b"))
    assert plan.folder == "/b"


def test_what_a_part_needs_decides_whether_it_can_be_opened() -> None:
    files = [f for f in shim("/a") if "runtime_compiled" not in f.path]
    new = library("/a/libcudnn_engines_runtime_compiled.so.9", needed=("libcuda.so.1",))
    load = part(plain(seen(*files, new, LD_LIBRARY_PATH="/a")), "engines_runtime_compiled")
    assert load is not None
    assert load.path == new.path
    assert "needs libcuda.so.1, which is not found" in (load.problem or "")


def test_preloaded_and_mapped_names_win() -> None:
    machine = seen(
        *shim("/a"), *shim("/b", "9.1.0"), LD_PRELOAD="/b/libcudnn.so.9", LD_LIBRARY_PATH="/a"
    )
    plan = plain(machine)
    assert plan.folder == "/b"


def test_companions_are_found_through_the_part_that_opens_them() -> None:
    site = "/v/nvidia"
    files = shim(f"{site}/cudnn/lib")
    lt = library(f"{site}/cublas/lib/libcublasLt.so.12")
    nvrtc = library(f"{site}/cuda_nvrtc/lib/libnvrtc.so.12")
    copy = CudnnCopy(folder=f"{site}/cudnn/lib", major=9, version="9.10.2", cuda="12")
    machine = seen(*files, lt, nvrtc, LD_LIBRARY_PATH=f"{site}/cudnn/lib")
    machine = msgspec.structs.replace(machine, copies=(copy,))
    found = {x.name: x for x in plain(machine).companions}
    assert found["libcublasLt.so.12"].path == lt.path
    assert found["libcublasLt.so.12"].via == "runpath"
    assert found["libnvrtc.so.12"].path == nvrtc.path
    assert found["libnvrtc-builtins.so"].via == "missing"
    assert found["libcuda.so.1"].via == "missing"


def test_companions_of_a_description_are_unknown_and_not_missing() -> None:
    plan = plan_of(described("torch", "2.9.1", wheel("9.10.2.21")))
    assert {x.via for x in plan.companions} == {"unknown"}


def test_a_conda_python_hands_its_rpath_to_what_it_opens() -> None:
    python = library("/c/bin/python3.12", rpath="$ORIGIN/../lib")
    machine = seen(*shim("/c/lib"), python)
    environment = Environment(prefix="/c", kind="conda", executable="/c/bin/python3.12")
    machine = msgspec.structs.replace(machine, environments=(environment,))
    consumer = Consumer(name="onnxruntime", scheme="ort-lazy-dlopen", major=9, environment="/c")
    plan = simulate(machine, consumer)
    assert plan.folder == "/c/lib"
    assert plan.shim is not None
    assert plan.shim.because == "RPATH $ORIGIN/../lib of /c/bin/python3.12"


TEXTS = st.text(alphabet="/$ORIGIN{}:;.lib\0 \n", max_size=40)


@settings(max_examples=150, deadline=None)
@given(
    path=TEXTS,
    rpath=st.none() | TEXTS,
    runpath=st.none() | TEXTS,
    version=st.none() | st.sampled_from(["9.10.2", "", "x", "9", "8.9.7.29", "99.1.1", "7.6.5"]),
    major=st.none() | st.integers(-1, 12),
    needed=st.lists(st.sampled_from(["libcudnn.so.9", "libz.so.1", "a/b", ""]), max_size=3),
)
def test_odd_facts_never_raise(
    path: str,
    rpath: str | None,
    runpath: str | None,
    version: str | None,
    major: int | None,
    needed: list[str],
) -> None:
    odd = Library(
        path="/a/libcudnn.so.9",
        rpath=rpath,
        runpath=runpath,
        version=version,
        needed=tuple(needed),
        soname="libcudnn.so.9",
    )
    copy = CudnnCopy(folder="/b", version=version, major=major)
    framework = Framework(name="torch", version=version or "", binaries=("/a/libcudnn.so.9",))
    machine = Machine(
        libraries=(odd,),
        copies=(copy,),
        frameworks=(framework,),
        environ={"LD_LIBRARY_PATH": path, "LD_PRELOAD": path},
    )
    for plan in simulate_all(machine):
        json.loads(msgspec.json.encode(plan))


def test_linear_and_fast_enough() -> None:
    """Twenty environments with a copy each: the plans of all of them in a blink."""
    import time

    files, frameworks, environments = [], [], []
    for i in range(20):
        site = f"/v{i}/lib/python3.12/site-packages"
        files += shim(f"{site}/nvidia/cudnn/lib")
        rpath = "$ORIGIN/../../nvidia/cudnn/lib"
        binary = library(
            f"{site}/torch/lib/libtorch_global_deps.so", rpath=rpath, needed=("libcudnn.so.9",)
        )
        files.append(binary)
        frameworks.append(
            Framework(
                name="torch",
                version="2.9.1",
                environment=f"/v{i}",
                location=f"{site}/torch",
                binaries=(binary.path,),
                cuda="12.8",
            )
        )
        environments.append(Environment(prefix=f"/v{i}", site_packages=(site,)))
    machine = msgspec.structs.replace(
        seen(*files), frameworks=tuple(frameworks), environments=tuple(environments)
    )
    start = time.perf_counter()
    plans = simulate_all(machine)
    taken = time.perf_counter() - start
    assert [p.folder for p in plans[:20]] == [
        f"/v{i}/lib/python3.12/site-packages/nvidia/cudnn/lib" for i in range(20)
    ]
    assert all(p.certain for p in plans)
    assert taken < 0.5, taken


def test_described_shims_follow_the_measured_boundary() -> None:
    assert opens.tags("", (9, 21, 0), "12") == (None, "$ORIGIN")
    assert opens.tags("", (9, 21, 1), "12") == ("$ORIGIN", None)
    assert "cu13/lib" in (opens.tags("ops", (9, 24, 0), "13").runpath or "")
    assert "cu13/lib" not in (opens.tags("ops", (9, 24, 0), "12").runpath or "")
