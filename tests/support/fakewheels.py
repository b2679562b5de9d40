"""Small wheels that look like NVIDIA's and the frameworks': real zips, RECORDs and ELF files.

The libraries are a few kilobytes; names, SONAMEs, DT_NEEDED and search tags are those measured on
the real wheels. The shim forwards ``cudnnGetVersion`` to the sublibrary it opens, as the real one
does, and aborts when it finds none.
"""

from __future__ import annotations

import atexit
import base64
import functools
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.elf import build_library, stub

Content = str | bytes | Path


def build_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, Content],
    requires: Sequence[str] = (),
    tag: str = "py3-none-any",
) -> Path:
    """Write a valid wheel; keys of ``files`` are paths below site-packages."""
    stem = f"{re.sub(r'[-_.]+', '_', name)}-{version}"
    info = f"{stem}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Requires-Dist: {line}" for line in requires]
    contents: dict[str, bytes] = {path: _bytes(content) for path, content in files.items()}
    contents[f"{info}/METADATA"] = ("\n".join(metadata) + "\n\nA stand-in.\n").encode()
    wheel = f"Wheel-Version: 1.0\nGenerator: fakewheels\nRoot-Is-Purelib: true\nTag: {tag}\n"
    contents[f"{info}/WHEEL"] = wheel.encode()
    record = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in contents.items()]
    contents[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in contents.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return target


def _bytes(content: Content) -> bytes:
    if isinstance(content, Path):
        return content.read_bytes()
    return content.encode() if isinstance(content, str) else content


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


# -- cuDNN


def sublibraries(version: str) -> tuple[str, ...]:
    """Short names of the sublibraries that a release ships (x86_64 wheels)."""
    release = _release(version)
    if release[0] < 8:
        return ()
    if release[0] == 8:
        kinds = ("adv_infer", "adv_train", "cnn_infer", "cnn_train", "ops_infer", "ops_train")
        return tuple(sorted(kinds))
    names = ["adv", "cnn", "engines_precompiled", "engines_runtime_compiled", "graph"]
    names += ["heuristic", "ops"]
    names += ["engines_tensor_ir"] if release >= (9, 21, 0) else []
    names += ["ext"] if release >= (9, 22, 0) else []
    return tuple(sorted(names))


def encoded(version: str) -> int:
    """What ``cudnnGetVersion`` returns for a release."""
    major, minor, patch = _release(version)
    return major * (10000 if major >= 9 else 1000) + minor * 100 + patch


def version_header(version: str) -> str:
    """A ``cudnn_version.h`` of a release."""
    major, minor, patch = _release(version)
    return (
        f"#ifndef CUDNN_VERSION_H_\n#define CUDNN_VERSION_H_\n#define CUDNN_MAJOR {major}\n"
        f"#define CUDNN_MINOR {minor}\n#define CUDNN_PATCHLEVEL {patch}\n#endif\n"
    )


@functools.cache
def cudnn_libraries(version: str, cuda: str = "12") -> dict[str, Path]:
    """Build the libraries of a release once a session: file name as in the wheel -> file."""
    folder = _scratch(f"cudnn-{version}-cu{cuda}")
    major = _release(version)[0]
    marker = f'const char cudnn_build[] = "cudnn {version} cuda {cuda} '
    answer = f"unsigned long cudnnGetVersion(void) {{ return {encoded(version)}; }}\n"
    shim = folder / f"libcudnn.so.{major}"
    if major < 8:
        return {shim.name: build_library(shim, source=f'{answer}{marker}shim";\n')}
    built: dict[str, Path] = {}
    order = sorted(sublibraries(version), key=lambda name: (len(_needs(name, version)), name))
    for name in order:
        speaks = answer if name in ("graph", "ops_infer") else ""
        built[f"libcudnn_{name}.so.{major}"] = build_library(
            folder / f"libcudnn_{name}.so.{major}",
            needed=[_resolve(folder, need) for need in _needs(name, version)],
            rpath=_sub_rpath(cuda),
            source=f'{speaks}{marker}{name}";\n',
        )
    tag = "rpath" if _release(version) >= (9, 21, 1) else "runpath"
    source = _shim_source(version) + f'{marker}shim";\n'
    build_library(shim, rpath="$ORIGIN", tag=tag, source=source)
    return {shim.name: shim, **dict(sorted(built.items()))}


def cudnn_wheel(folder: Path, version: str, cuda: str = "12", without: Sequence[str] = ()) -> Path:
    """A wheel ``nvidia-cudnn-cuNN``; ``without`` leaves out file names."""
    files: dict[str, Content] = {
        f"nvidia/cudnn/lib/{name}": path
        for name, path in cudnn_libraries(version, cuda).items()
        if name not in without
    }
    files["nvidia/cudnn/include/cudnn_version.h"] = version_header(version)
    files |= {"nvidia/__init__.py": "", "nvidia/cudnn/__init__.py": ""}  # the same in all versions
    needs = "nvidia-cublas" if int(cuda) >= 13 else f"nvidia-cublas-cu{cuda}"
    return build_wheel(folder, f"nvidia-cudnn-cu{cuda}", version, files, [needs])


def cudnn_folder(folder: Path, version: str, cuda: str = "12") -> Path:
    """Lay a release out as packages and archives do: real files ``.so.X.Y.Z`` and links."""
    folder.mkdir(parents=True, exist_ok=True)
    short = ".".join(map(str, _release(version)))
    for name, path in cudnn_libraries(version, cuda).items():
        stem = name.rsplit(".so.", 1)[0]
        shutil.copy(path, folder / f"{stem}.so.{short}")
        (folder / name).symlink_to(f"{stem}.so.{short}")
        (folder / f"{stem}.so").symlink_to(name)
    return folder


JIT = re.compile(r"libcudnn(_graph|_engines_runtime_compiled|_engines_tensor_ir)?\.so\b")
"""Libraries that the JIT flavour has as well."""


# -- its companions and users


def cuda_wheel(folder: Path, name: str, version: str, path: str, sonames: Sequence[str]) -> Path:
    """A wheel of CUDA libraries, such as ``nvidia-cublas-cu12`` in ``nvidia/cublas/lib``."""
    scratch = _scratch(f"{name}-{version}")
    files = {f"{path}/{s}": build_library(scratch / s, rpath="$ORIGIN") for s in sonames}
    return build_wheel(folder, name, version, files)


def torch_wheel(
    folder: Path, version: str = "2.9.1", cuda: str = "12.8", cudnn: str = "9.10.2.21"
) -> Path:
    """A ``torch`` whose objects need libcudnn.so.N through DT_RPATH, as the real ones do."""
    cuda_major, cudnn_major = cuda.split(".")[0], cudnn.split(".")[0]
    scratch = _scratch(f"torch-{version}-{cuda}-{cudnn}")
    needed = [stub(scratch / "stubs", f"libcudnn.so.{cudnn_major}")]
    parts = ["cublas", "cudnn", "cuda_nvrtc", "cuda_runtime"]
    parts += ["cu13"] if cuda_major == "13" else []
    rpath = ":".join([*(f"$ORIGIN/../../nvidia/{part}/lib" for part in parts), "$ORIGIN"])
    names = ("libtorch_global_deps.so", "libtorch_cuda.so", "libc10_cuda.so")
    files: dict[str, Content] = {
        f"torch/lib/{name}": build_library(
            scratch / name, needed=needed if "c10" not in name else [], rpath=rpath, tag="rpath"
        )
        for name in names
    }
    files["torch/__init__.py"] = "raise SystemExit('torch must not be imported')\n"
    files["torch/version.py"] = (
        "__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']\n"
        f"__version__ = '{version}+cu{cuda.replace('.', '')}'\ndebug = False\n"
        f"cuda: Optional[str] = '{cuda}'\nhip: Optional[str] = None\n"
    )
    requires = [f"nvidia-cudnn-cu{cuda_major}=={cudnn}; platform_system == 'Linux'", "filelock"]
    return build_wheel(folder, "torch", version, files, requires)


# -- environments


def make_venv(prefix: Path) -> Path:
    """A real virtual environment without pip; returns its site-packages folder."""
    command = [sys.executable, "-m", "venv", "--without-pip", str(prefix)]
    subprocess.run(command, check=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return prefix / "lib" / version / "site-packages"


def install(prefix: Path, *wheels: Path) -> None:
    """Install wheels with real pip, without their dependencies and without an index."""
    command = [sys.executable, "-m", "pip", "--python", str(prefix), "-q", "install"]
    command += ["--no-deps", "--no-index", "--force-reinstall", "--disable-pip-version-check"]
    subprocess.run([*command, *map(str, wheels)], check=True)


# -- details


def _release(version: str) -> tuple[int, int, int]:
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    return major, minor, patch


def _needs(name: str, version: str) -> tuple[str, ...]:
    release = _release(version)
    if release[0] == 8:
        infer = "libcudnn_ops_infer.so.8"
        pair = (infer, "libcudnn_ops_train.so.8")
        return {
            "ops_infer": (),
            "ops_train": (infer,),
            "adv_infer": (infer,),
            "cnn_infer": (infer,),
            "adv_train": (*pair, "libcudnn_adv_infer.so.8"),
            "cnn_train": (*pair, "libcudnn_cnn_infer.so.8"),
        }[name]
    graph = "libcudnn_graph.so.9"
    if name in ("graph", "ext"):
        return ()
    if name in ("adv", "cnn"):
        return ("libcudnn_ops.so.9", graph)
    if name == "engines_runtime_compiled" and release >= (9, 27, 0):
        return (graph, "libcuda.so.1")
    return (graph,)


def _resolve(folder: Path, soname: str) -> Path:
    return folder / soname if soname.startswith("libcudnn") else stub(folder / "stubs", soname)


def _sub_rpath(cuda: str) -> str:
    parts = ["cublas/lib", "cuda_nvrtc/lib" if cuda == "13" else "nvrtc/lib"]
    parts += ["cu13/lib"] if cuda == "13" else []
    return ":".join(["$ORIGIN", *(f"$ORIGIN/../../{part}" for part in parts)])


def _shim_source(version: str) -> str:
    major, minor, patch = _release(version)
    names = [f"libcudnn_ops_infer.so.{major}"]
    if major >= 9:
        endings = (f".{major}.{minor}.{patch}", f".{major}.{minor}", f".{major}", "")
        names = [f"libcudnn_graph.so{ending}" for ending in endings]
    listed = ", ".join(f'"{name}"' for name in names)
    return f"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
static const char *names[] = {{{listed}, 0}};
unsigned long cudnnGetVersion(void) {{
    for (const char **name = names; *name; name++) {{
        void *handle = dlopen(*name, RTLD_NOW);
        void *symbol = handle ? dlsym(handle, "cudnnGetVersion") : 0;
        if (symbol) return ((unsigned long (*)(void))symbol)();
    }}
    fprintf(stderr, "Unable to load any of {{{", ".join(names)}}}\\n");
    abort();
}}
"""


@functools.cache
def _scratch_root() -> Path:
    root = Path(tempfile.mkdtemp(prefix="fakewheels-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root


def _scratch(name: str) -> Path:
    folder = _scratch_root() / name
    folder.mkdir(exist_ok=True)
    return folder
