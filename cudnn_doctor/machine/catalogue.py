"""The frameworks that bring cuDNN into a process: their names, their files, how they load it.

Adding a framework is adding one `FrameworkDescriptor`. Ids of loading schemes are those of the
matrix (``loaders`` in compat_matrix.yaml); `SCHEMES` holds what the loader simulation has to know
about each.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class LoadingScheme(NamedTuple):
    """How a framework gets at cuDNN."""

    uses_cudnn: bool | None
    """None: not established."""
    opens: Literal["needed", "dlopen", "none", "unknown"]
    """Named in its objects' DT_NEEDED, or opened by name at run time."""
    preload: Literal["always", "fallback", "on-request", "never"] = "never"
    """Whether its Python code opens cuDNN by absolute path before the objects ask for it."""
    preload_globs: tuple[str, ...] = ()
    """Below each site-packages folder, in the order in which that code tries them."""


_WHEEL = ("nvidia/cudnn/lib/libcudnn.so.*[0-9]",)

SCHEMES: dict[str, LoadingScheme] = {
    "torch-rpath-wheel-cu12": LoadingScheme(True, "needed", "fallback", _WHEEL),
    "torch-rpath-wheel-cu13": LoadingScheme(True, "needed", "always", _WHEEL),
    "torch-bundled-in-torch-lib": LoadingScheme(True, "needed"),
    "torch-index-small-or-large": LoadingScheme(True, "needed", "fallback", _WHEEL),
    "tf-dlopen-runpath": LoadingScheme(True, "dlopen"),
    "tf-dlopen-default-path": LoadingScheme(True, "dlopen"),
    "jax-preload-then-rpath": LoadingScheme(
        True, "dlopen", "always", ("nvidia/cudnn/lib/libcudnn.so.9",)
    ),
    "jax-dlopen-rpath": LoadingScheme(True, "dlopen"),
    "ort-needed-default-path": LoadingScheme(True, "needed", "on-request", _WHEEL),
    "ort-lazy-dlopen": LoadingScheme(True, "dlopen", "on-request", _WHEEL),
    "ct2-bundled-shim": LoadingScheme(True, "needed"),
    "ct2-no-cudnn": LoadingScheme(False, "none"),
    "cupy-needed-preload": LoadingScheme(True, "needed"),
    "te-system-first": LoadingScheme(True, "dlopen", "always", _WHEEL),
    "cudnn-frontend-dlopen": LoadingScheme(
        True, "dlopen", "always", (*_WHEEL, "nvidia/cudnn_jit/lib/libcudnn.so.*[0-9]")
    ),
    "wheel-by-path": LoadingScheme(True, "none", "always", _WHEEL),
    "inherits-torch": LoadingScheme(True, "none"),
    "inherits-ctranslate2": LoadingScheme(True, "none"),
    "link-time-default-path": LoadingScheme(True, "needed"),
    "none": LoadingScheme(False, "none"),
    "unknown": LoadingScheme(None, "unknown"),
}


class SchemeRange(NamedTuple):
    """A loading scheme and the versions of the framework that use it."""

    scheme: str
    versions: str = ""
    """PEP 440 specifier, empty for all."""
    cuda: str = ""
    """CUDA majors for which it holds, such as ``"11 12"``; empty for all."""
    local: bool | None = None
    """True: only versions with a local part (``+cu118``, the framework's own index)."""


class FrameworkDescriptor(NamedTuple):
    """One framework; globs are relative to a site-packages folder."""

    name: str
    distributions: tuple[str, ...]
    """Normalised names; the first one installed gives version and requirements. ``*`` matches."""
    package: str
    """Folder (or module file) that is imported."""
    binaries: tuple[str, ...] = ()
    """Native objects that bring cuDNN in."""
    gpu_marks: tuple[str, ...] = ()
    """Files of which a CUDA build has at least one; none of them on disk means a CPU build."""
    build_files: tuple[str, ...] = ()
    """Python files that state the CUDA and cuDNN of the build; read as text."""
    schemes: tuple[SchemeRange, ...] = ()


CATALOGUE: tuple[FrameworkDescriptor, ...] = (
    FrameworkDescriptor(
        name="torch",
        distributions=("torch",),
        package="torch",
        binaries=(
            "torch/lib/libtorch_global_deps.so",
            "torch/lib/libtorch_cuda.so",
            "torch/lib/libtorch_cuda_cpp.so",
            "torch/lib/libtorch_python.so",
            "torch/lib/libc10_cuda.so",
        ),
        gpu_marks=("torch/lib/libtorch_cuda.so", "torch/lib/libc10_cuda.so"),
        build_files=("torch/version.py",),
        schemes=(
            SchemeRange("torch-bundled-in-torch-lib", "<2.2", local=True),
            SchemeRange("torch-index-small-or-large", ">=2.2", local=True),
            SchemeRange("torch-bundled-in-torch-lib", "<1.13"),
            SchemeRange("torch-rpath-wheel-cu12", ">=1.13", cuda="10 11 12"),
            SchemeRange("torch-rpath-wheel-cu13", ">=2.9", cuda="13"),
            SchemeRange("torch-rpath-wheel-cu12", ">=1.13,<2.11"),
            SchemeRange("torch-rpath-wheel-cu13", ">=2.11"),
        ),
    ),
    FrameworkDescriptor(
        name="tensorflow",
        distributions=("tensorflow", "tensorflow-gpu", "tensorflow-cpu", "tf-nightly"),
        package="tensorflow",
        binaries=(
            "tensorflow/libtensorflow_cc.so.2",
            "tensorflow/libtensorflow_framework.so.2",
            "tensorflow/python/_pywrap_tensorflow_internal.so",
        ),
        build_files=("tensorflow/python/platform/build_info.py",),
        schemes=(
            SchemeRange("tf-dlopen-default-path", "<2.14"),
            SchemeRange("tf-dlopen-runpath", ">=2.14"),
        ),
    ),
    FrameworkDescriptor(
        name="jax",
        distributions=("jax-cuda13-plugin", "jax-cuda12-plugin", "jaxlib", "jax"),
        package="jax",
        binaries=(
            "jax_plugins/xla_cuda1[0-9]/xla_cuda_plugin.so",
            "jax_plugins/xla_cuda1[0-9]/_versions.so",
            "jax_cuda1[0-9]_plugin/_versions.so",
            "jaxlib/xla_extension.so",
            "jaxlib/cuda/_versions.so",
        ),
        gpu_marks=(
            "jax_plugins/xla_cuda1[0-9]/xla_cuda_plugin.so",
            "jaxlib/cuda",
            "jaxlib/cuda_*",
        ),
        schemes=(
            SchemeRange("jax-dlopen-rpath", "<0.6.2"),
            SchemeRange("jax-preload-then-rpath", ">=0.6.2"),
        ),
    ),
    FrameworkDescriptor(
        name="onnxruntime",
        distributions=("onnxruntime-gpu", "onnxruntime-training", "ort-nightly-gpu", "onnxruntime"),
        package="onnxruntime",
        binaries=(
            "onnxruntime/capi/libonnxruntime_providers_cuda.so",
            "onnxruntime/capi/libonnxruntime_providers_tensorrt.so",
        ),
        gpu_marks=("onnxruntime/capi/libonnxruntime_providers_cuda.so",),
        build_files=(
            "onnxruntime/capi/build_and_package_info.py",
            "onnxruntime/capi/version_info.py",
        ),
        schemes=(
            SchemeRange("ort-needed-default-path", "<1.28"),
            SchemeRange("ort-lazy-dlopen", ">=1.28"),
        ),
    ),
    FrameworkDescriptor(
        name="ctranslate2",
        distributions=("ctranslate2",),
        package="ctranslate2",
        binaries=("ctranslate2.libs/libctranslate2-*.so*", "ctranslate2.libs/libcudnn*.so*"),
        schemes=(
            SchemeRange("ct2-bundled-shim", "<4.6.3"),
            SchemeRange("ct2-no-cudnn", ">=4.6.3"),
        ),
    ),
    FrameworkDescriptor(
        name="paddlepaddle",
        distributions=("paddlepaddle-gpu", "paddlepaddle"),
        package="paddle",
        binaries=(
            "paddle/base/libpaddle.so",
            "paddle/fluid/libpaddle.so",
            "paddle/fluid/core_avx.so",
            "paddle/libs/libphi.so",
            "paddle/libs/libphi_gpu.so",
            "paddle/libs/libphi_core.so",
        ),
        build_files=("paddle/version/__init__.py", "paddle/version.py"),
        schemes=(SchemeRange("unknown"),),
    ),
    FrameworkDescriptor(
        name="cupy",
        distributions=("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy-cuda1*", "cupy"),
        package="cupy",
        binaries=("cupy_backends/cuda/libs/cudnn*.so", "cupy/cudnn*.so"),
        schemes=(
            SchemeRange("none", ">=13.6,<14", cuda="13"),
            SchemeRange("none", ">=14"),
            SchemeRange("none", "<12", cuda="12"),
            SchemeRange("cupy-needed-preload", "<14"),
        ),
    ),
    FrameworkDescriptor(
        name="tensorrt",
        distributions=("tensorrt-cu13", "tensorrt-cu12", "tensorrt-cu11", "tensorrt"),
        package="tensorrt",
        binaries=("tensorrt_libs/libnvinfer*.so*", "tensorrt/libnvinfer*.so*"),
        schemes=(SchemeRange("unknown", "<11"), SchemeRange("none", ">=11")),
    ),
    FrameworkDescriptor(
        name="transformer-engine",
        distributions=(
            "transformer-engine",
            "transformer-engine-cu13",
            "transformer-engine-cu12",
            "transformer-engine-torch",
        ),
        package="transformer_engine",
        binaries=(
            "transformer_engine/libtransformer_engine.so",
            "transformer_engine/wheel_lib/libtransformer_engine.so",
            "transformer_engine_torch*.so",
            "transformer_engine/wheel_lib/transformer_engine_torch*.so",
        ),
        schemes=(SchemeRange("te-system-first"),),
    ),
    FrameworkDescriptor(
        name="nvidia-cudnn-frontend",
        distributions=("nvidia-cudnn-frontend",),
        package="cudnn",
        binaries=("cudnn/_compiled_module*.so",),
        schemes=(SchemeRange("cudnn-frontend-dlopen"),),
    ),
    FrameworkDescriptor(
        name="mxnet",
        distributions=("mxnet-cu112", "mxnet-cu110", "mxnet-cu102", "mxnet-cu1*", "mxnet"),
        package="mxnet",
        binaries=("mxnet/libmxnet.so",),
        schemes=(SchemeRange("link-time-default-path"),),
    ),
    FrameworkDescriptor(
        name="vllm",
        distributions=("vllm",),
        package="vllm",
        schemes=(SchemeRange("inherits-torch"),),
    ),
    FrameworkDescriptor(
        name="xformers",
        distributions=("xformers",),
        package="xformers",
        schemes=(SchemeRange("inherits-torch"),),
    ),
    FrameworkDescriptor(
        name="faster-whisper",
        distributions=("faster-whisper",),
        package="faster_whisper",
        schemes=(SchemeRange("inherits-ctranslate2"),),
    ),
    FrameworkDescriptor(
        name="whisperx",
        distributions=("whisperx",),
        package="whisperx",
        schemes=(SchemeRange("inherits-ctranslate2"),),
    ),
)

_BY_NAME = {descriptor.name: descriptor for descriptor in CATALOGUE}


def scheme_for(name: str, version: str, cuda: str | None) -> str:
    """Id of the loading scheme of a framework's build: ``none`` for a CPU build, ``unknown`` where
    nothing is established. ``cuda`` is `Framework.cuda` (``"12.8"``, ``"12"``, ``"cpu"``, None).
    """
    descriptor = _BY_NAME.get(name)
    if descriptor is None:
        return "unknown"
    if cuda == "cpu":
        return "none"
    from packaging.version import InvalidVersion, Version

    try:
        parsed = Version(version)
    except InvalidVersion:
        return "unknown"
    major = (cuda or "").split(".")[0]
    for candidate in descriptor.schemes:
        if _applies(candidate, parsed.public, parsed.local, major):
            return candidate.scheme
    return "unknown"


def _applies(candidate: SchemeRange, public: str, local: str | None, cuda_major: str) -> bool:
    from packaging.specifiers import SpecifierSet

    if candidate.cuda and cuda_major not in candidate.cuda.split():
        return False
    if candidate.local and not (local or "").startswith("cu"):
        return False
    return SpecifierSet(candidate.versions).contains(public, prereleases=True)
