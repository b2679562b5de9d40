"""Frameworks found in real environments with stand-in wheels, installed by real pip."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import fakewheels

from cudnn_doctor.machine.catalogue import CATALOGUE, SCHEMES, scheme_for
from cudnn_doctor.machine.environments import probe_environments
from cudnn_doctor.machine.frameworks import probe_frameworks, stated
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Framework


def frameworks(tmp_path: Path, *wheels: Path) -> dict[str, Framework]:
    prefix = tmp_path / "venv"
    fakewheels.make_venv(prefix)
    fakewheels.install(prefix, *wheels)
    host = Host("/", {"VIRTUAL_ENV": str(prefix), "HOME": str(tmp_path), "PATH": ""})
    found = probe_frameworks(host, probe_environments(host))
    assert not host.failures
    return {f.name: f for f in found if f.environment == str(prefix)}


def test_torch_is_read_without_being_imported(tmp_path: Path) -> None:
    torch = frameworks(tmp_path, fakewheels.torch_wheel(tmp_path))["torch"]
    site = Path(torch.location).parent
    assert (torch.version, torch.cuda, torch.cudnn_built) == ("2.9.1", "12.8", None)
    assert torch.pins == ("nvidia-cudnn-cu12==9.10.2.21; platform_system == 'Linux'",)
    assert set(torch.binaries) == {
        str(site / "torch/lib" / name)
        for name in ("libtorch_global_deps.so", "libtorch_cuda.so", "libc10_cuda.so")
    }
    assert scheme_for(torch.name, torch.version, torch.cuda) == "torch-rpath-wheel-cu12"


def test_what_files_tell_of_other_frameworks(tmp_path: Path) -> None:
    def wheel(name: str, version: str, files: dict[str, str], *requires: str) -> Path:
        return fakewheels.build_wheel(tmp_path, name, version, files, requires)

    info = (
        "build_info = collections.OrderedDict([('cpu_compiler', 'clang'), ('cuda_version',"
        " '12.5.1'), ('cudnn_version', '9'), ('is_cuda_build', True)])\n"
    )
    bundled = "ctranslate2.libs/libcudnn-74a4c495.so.9.1.0"
    plugin = "nvidia-cudnn-cu13<10.0,>=9.8; extra == 'with-cuda'"
    found = frameworks(
        tmp_path,
        wheel("tensorflow", "2.21.0", {"tensorflow/python/platform/build_info.py": info}),
        wheel("jax", "0.11.0", {"jax/__init__.py": ""}),
        wheel("jaxlib", "0.11.0", {"jaxlib/__init__.py": ""}),
        wheel("jax_cuda13_plugin", "0.11.0", {"jax_cuda13_plugin/_versions.so": "x"}, plugin),
        wheel(
            "onnxruntime_gpu",
            "1.22.0",
            {"onnxruntime/capi/build_and_package_info.py": "cuda_version = '12.8'\n"},
        ),
        wheel("ctranslate2", "4.6.2", {bundled: "x", "ctranslate2/__init__.py": ""}),
        wheel("cupy_cuda12x", "13.6.0", {"cupy_backends/cuda/libs/cudnn.cp.so": "x"}),
        wheel(
            "paddlepaddle_gpu",
            "3.0.0",
            {
                "paddle/version/__init__.py": "rc               = '0'\n"
                "cuda_version     = '12.6'\ncudnn_version    = '9.5.1'\n"
            },
        ),
        wheel("tensorrt_cu12", "10.9.0", {"tensorrt/__init__.py": ""}),
        wheel("transformer_engine", "2.20.2", {"transformer_engine/__init__.py": ""}),
        wheel(
            "transformer_engine_cu13",
            "2.20.2",
            {"transformer_engine/wheel_lib/libtransformer_engine.so": "x"},
        ),
    )
    assert {name: (f.cuda, f.cudnn_built) for name, f in found.items()} == {
        "tensorflow": ("12.5", "9"),
        "jax": ("13", None),
        "onnxruntime": ("12.8", None),
        "ctranslate2": (None, "9.1.0"),
        "cupy": ("12", None),
        "paddlepaddle": ("12.6", "9.5.1"),
        "tensorrt": ("12", None),
        "transformer-engine": ("13", None),
    }
    assert found["jax"].distribution == "jax-cuda13-plugin"
    assert found["jax"].pins == (plugin,)
    assert [Path(p).name for p in found["ctranslate2"].binaries] == [Path(bundled).name]


@pytest.mark.parametrize(
    ("name", "version", "files"),
    [
        ("torch", "2.9.1+cpu", {"torch/version.py": "cuda: Optional[str] = None\n"}),
        ("torch", "2.9.1", {"torch/__init__.py": ""}),
        ("tensorflow_cpu", "2.21.0", {"tensorflow/__init__.py": ""}),
        (
            "tensorflow",
            "2.21.0",
            {"tensorflow/python/platform/build_info.py": "[('is_cuda_build', False)]"},
        ),
        ("jaxlib", "0.11.0", {"jaxlib/__init__.py": ""}),
        ("paddlepaddle", "3.0.0", {"paddle/version/__init__.py": "cuda_version = 'False'\n"}),
        ("onnxruntime", "1.22.0", {"onnxruntime/capi/build_and_package_info.py": ""}),
    ],
)
def test_cpu_builds_are_told_from_cuda_builds(
    name: str, version: str, files: dict[str, str], tmp_path: Path
) -> None:
    wheel = fakewheels.build_wheel(tmp_path, name, version, files)
    (found,) = frameworks(tmp_path, wheel).values()
    assert found.cuda == "cpu"
    assert scheme_for(found.name, found.version, found.cuda) == "none"


def test_an_overwritten_gpu_build_is_a_cpu_build(tmp_path: Path) -> None:
    marks = {"onnxruntime/capi/libonnxruntime_providers_cuda.so": ""}
    told = "package_name = 'onnxruntime'\n__version__ = '1.22.0'\n"
    wheels = (
        fakewheels.build_wheel(tmp_path, "onnxruntime_gpu", "1.22.0", marks),
        fakewheels.build_wheel(
            tmp_path, "onnxruntime", "1.22.0", {"onnxruntime/capi/build_and_package_info.py": told}
        ),
    )
    (found,) = frameworks(tmp_path, *wheels).values()
    assert (found.distribution, found.cuda) == ("onnxruntime", "cpu")


@pytest.mark.parametrize(
    ("name", "version", "cuda", "scheme"),
    [
        ("torch", "1.12.1+cu116", "11.6", "torch-bundled-in-torch-lib"),
        ("torch", "2.1.0+cu118", "11.8", "torch-bundled-in-torch-lib"),
        ("torch", "2.6.0+cu126", "12.6", "torch-index-small-or-large"),
        ("torch", "1.13.1", "11.7", "torch-rpath-wheel-cu12"),
        ("torch", "2.10.0", "12.8", "torch-rpath-wheel-cu12"),
        ("torch", "2.11.0", "13.0", "torch-rpath-wheel-cu13"),
        ("torch", "2.11.0", None, "torch-rpath-wheel-cu13"),
        ("tensorflow", "2.13.1", "11.8", "tf-dlopen-default-path"),
        ("tensorflow", "2.15.0.post1", "12.2", "tf-dlopen-runpath"),
        ("tensorflow", "2.22.0rc0", None, "tf-dlopen-runpath"),
        ("jax", "0.6.1", "12", "jax-dlopen-rpath"),
        ("jax", "0.6.2", "12", "jax-preload-then-rpath"),
        ("onnxruntime", "1.27.0", "13.0", "ort-needed-default-path"),
        ("onnxruntime", "1.28.0", "13.0", "ort-lazy-dlopen"),
        ("ctranslate2", "4.6.2", None, "ct2-bundled-shim"),
        ("ctranslate2", "4.6.3", None, "ct2-no-cudnn"),
        ("cupy", "13.6.0", "12", "cupy-needed-preload"),
        ("cupy", "13.6.0", "13", "none"),
        ("cupy", "14.0.1", "12", "none"),
        ("nvidia-cudnn-frontend", "1.28.0", None, "cudnn-frontend-dlopen"),
        ("torch", "not a version", None, "unknown"),
        ("nothing", "1", None, "unknown"),
    ],
)
def test_scheme_follows_version_and_build(
    name: str, version: str, cuda: str | None, scheme: str
) -> None:
    assert scheme_for(name, version, cuda) == scheme


def test_catalogue_is_consistent() -> None:
    names = [descriptor.name for descriptor in CATALOGUE]
    assert len(names) == len(set(names))
    for descriptor in CATALOGUE:
        assert descriptor.schemes, descriptor.name
        assert {r.scheme for r in descriptor.schemes} <= SCHEMES.keys()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("cuda = '12.8'", "12.8"),
        ('cuda: Optional[str] = "12.8"', "12.8"),
        ("cuda: Optional[str] = None", "None"),
        ("x = [('a', 1), ('cuda', '12.8')]", "12.8"),
        ("x = {'cuda': '12.8'}", "12.8"),
        ("__all__ = ['cuda', 'hip']\ncuda = '13.0'\n", "13.0"),
        ("not_cuda = '1'\ncuda_x = '2'\n# cuda = '3'\n", None),
        ("", None),
    ],
)
def test_stated(text: str, wanted: str | None) -> None:
    assert stated(text, "cuda") == wanted


@given(st.text(), st.text())
def test_stated_never_raises(text: str, tail: str) -> None:
    stated(text, "cuda")
    stated(f"cuda = {text}'{tail}", "cuda")
