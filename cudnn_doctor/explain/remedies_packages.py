"""Remedies for packages, downloads, builds and CUDA's own libraries."""

# Shell lines stay whole, so that they can be found and read as they are typed.
# ruff: noqa: E501

from __future__ import annotations

import re

from cudnn_doctor.checks.model import Remedy
from cudnn_doctor.explain.wording import Words


def _r(title: str, *commands: str, root: bool = False, auto: bool = False) -> Remedy:
    return Remedy(title=title, commands=commands, needs_root=root, automatic=auto)


def apt_pin(w: Words) -> tuple[Remedy, ...]:
    for seen in w.case.seen("apt-depends"):
        who, need, version = seen.get("who"), seen.get("need"), seen.get("version").strip()
        return (_r("Ask for both in one version, and hold them",
                   f"sudo apt-get install --allow-downgrades {need}={version} {who}={version}",
                   f"sudo apt-mark hold {need} {who}", root=True),)  # fmt: skip
    return (_r("Ask for both in one version",
               "sudo apt-get install --allow-downgrades <runtime>=<version> <dev>=<version>", root=True),)  # fmt: skip


def apt_repo(w: Words) -> tuple[Remedy, ...]:
    system = w.case.facts.machine.system
    distro = (system.distro_id or "<distro>") + (system.distro_version or "<version>").replace(
        ".", ""
    )
    return (
        _r("Point the source at the repository of this release",
           f"# use https://developer.download.nvidia.com/compute/cuda/repos/{distro}/x86_64/ with cuda 12.x packages",
           "grep -rln nvidia /etc/apt/sources.list.d", "sudo apt-get update", root=True),
        _r("Or use an image of the release that the repository is for"),
    )  # fmt: skip


def headers(w: Words) -> tuple[Remedy, ...]:
    lib = "/usr/lib/x86_64-linux-gnu"
    copy = next((c.folder for c in w.case.facts.copies if c.kind == "system" and c.folder), lib)
    return (
        _r("Install the headers", *w.dev_install, root=True),
        _r("Tell the build where they are",
           f"cmake -D CUDNN_INCLUDE_DIR=/usr/include -D CUDNN_LIBRARY={copy}/libcudnn.so ..."),
    )  # fmt: skip


def placeholder_pin(w: Words) -> tuple[Remedy, ...]:
    name, spec = w.wheel_package, ">=9.15"
    specs = [o.get("spec").lstrip("=<>~! ") for o in w.case.seen("pin") if o.get("name") == name]
    if specs:
        newest = max(specs, key=lambda s: [int(p) for p in re.findall(r"\d+", s)])
        spec = f">={newest}"
    return (
        _r("uv: override the pin in pyproject.toml", f'[tool.uv] override-dependencies = ["{name}{spec}"]'),
        _r("pip: install it afterwards, without dependencies (same major, higher minor: safe)",
           f'pip install --no-deps "{name}{spec}"', auto=True),
    )  # fmt: skip


def corrupt(w: Words) -> tuple[Remedy, ...]:
    text = "\n".join(o.text for o in w.case.observations)
    found = re.search(r"(nvidia[-_]cudnn[-_]cu\d\d)(?:==|-)(\d[\d.]*\d)", text)
    name = f"{found[1].replace('_', '-')}=={found[2]}" if found else w.exact_wheel
    if w.case.seen("apt-depends") or re.search(r"Hash Sum mismatch", text):
        return (_r("Fetch the lists and the package again",
                   "sudo apt-get clean && sudo rm -rf /var/lib/apt/lists/* && sudo apt-get update", root=True),)  # fmt: skip
    return (
        _r("Empty the cache and fetch it again",
           f"pip cache purge && pip install --no-cache-dir {name}", auto=True),
        _r("uv", f"uv cache clean nvidia-cudnn-cu12 && uv pip install {name}"),
        _r("On a weak line: resume, then check", "curl -C - -O <url>; sha256sum <file>; pip install ./<file>"),
    )  # fmt: skip


def cuda_lib(w: Words) -> tuple[Remedy, ...]:
    cuda = w.cuda_major or "12"
    names = []
    for seen in w.case.seen("missing-library"):
        lib = re.match(
            r"lib(curand|cufft|cublas|cudart|cusolver|cusparse|nvJitLink|nvrtc|cupti)",
            seen.get("lib"),
        )
        if lib:
            names.append({"cudart": "cuda-runtime", "nvJitLink": "nvjitlink", "nvrtc": "cuda-nvrtc",
                          "cupti": "cuda-cupti"}.get(lib[1], lib[1]))  # fmt: skip
    wanted = list(dict.fromkeys([*names, "cublas", "cuda-runtime"]))
    if w.case.facts.uses("onnxruntime"):
        wanted = list(dict.fromkeys([*names, "curand", "cufft", "cublas", "cuda-runtime"]))
    if "of another release" in w.culprit:
        return (_r("Take the other release off LD_LIBRARY_PATH", "unset LD_LIBRARY_PATH"),
                _r("Or bring the wheel up to date", f"pip install -U nvidia-nvjitlink-cu{cuda}"))  # fmt: skip
    packages = " ".join(f"nvidia-{n}-cu{cuda}" for n in wanted)
    commands = [f"pip install {packages}"]
    if w.case.facts.uses("onnxruntime"):
        commands.append("python: onnxruntime.preload_dlls()")
    return (
        _r("Add the CUDA libraries to the environment", *commands),
        _r(
            "Or use an image with the CUDA runtime",
            "FROM nvidia/cuda:<version>-runtime-ubuntu22.04",
        ),
    )


def cudnn_cuda(w: Words) -> tuple[Remedy, ...]:
    found = re.search(r"libcublas\w*\.so\.(\d+)|lib\w+\.so\.(\d+)", w.culprit)
    major = (found[1] or found[2]) if found else "12"
    last = {"10": "10-2", "11": "11-8", "12": "12-9", "13": "13-0"}.get(major, f"{major}-0")
    install = f"sudo apt-get install libcublas-{last}"
    if w.case.facts.manager in ("dnf", "zypper"):
        install = f"sudo {w.case.facts.manager} install libcublas-{last}"
    return (_r("Give cuDNN the CUDA libraries that it was built for",
               "ldconfig -p | grep libcublas", f"{install}   # or the cuDNN of your CUDA major", root=True),)  # fmt: skip


def cuda_major(w: Words) -> tuple[Remedy, ...]:
    have = max(w.case.facts.cuda_majors, default=13)
    found = re.search(r"CUDA (\d+) \(lib", w.culprit)
    want = found[1] if found else "12"
    who = re.match(r"([\w-]+)[\w. ]* built for", w.culprit)
    name = who[1] if who and who[1] != "a" else "the extension"
    return (
        _r(f"Install the build of {name} for CUDA {have}", f"pip install -U {name}   # its cu{have}0 build"),
        _r(f"Or add the CUDA {want} run-time wheels",
           f"pip install nvidia-cuda-runtime-cu{want} nvidia-cuda-nvrtc-cu{want}   # and add their lib folders to LD_LIBRARY_PATH"),
    )  # fmt: skip


def nvrtc(w: Words) -> tuple[Remedy, ...]:
    hashed = re.search(r"libnvrtc-[0-9a-f]+\.so[.\d]*", w.case.facts.prose)
    torch = w.case.facts.framework("torch")
    found = []
    if hashed or torch:
        name = hashed[0] if hashed else "libnvrtc-*.so.1*"
        found.append(_r("Make the name that cuDNN asks for",
                        f"cd <venv>/lib/python3.X/site-packages/torch/lib && ln -s {name} libnvrtc.so"))  # fmt: skip
        if torch is None or torch.version.startswith("2.0.0"):
            found.append(_r("Or take the release that mends it", 'pip install "torch>=2.0.1"'))
    found.append(_r("Or install NVRTC", f"pip install nvidia-cuda-nvrtc-cu{w.cuda_major or 12}"))
    return tuple(found)


def libcuda(w: Words) -> tuple[Remedy, ...]:
    if w.case.facts.wsl:
        return (
            _r("Let the loader find it by that name", "export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH"),
            _r("Or make the link", "sudo ln -s /usr/lib/wsl/lib/libcuda.so.1 /usr/local/lib/libcuda.so && sudo ldconfig",
               root=True, auto=True),
        )  # fmt: skip
    return (_r("Make the link", 'sudo ln -s "$(ldconfig -p | grep -m1 -o \'/.*libcuda.so.1\')" /usr/local/lib/libcuda.so && sudo ldconfig',
               root=True, auto=True),
            _r("On WSL", "export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH"))  # fmt: skip


def index(w: Words) -> tuple[Remedy, ...]:
    if w.case.seen("conda-missing"):
        return (_r("Ask for what the channel has", "conda search -c conda-forge cudnn",
                   "conda install -c conda-forge cudnn"),)  # fmt: skip
    return (_r("Ask for a version that is served for this platform", f"pip index versions {w.wheel_package}",
               f'pip install "{w.wheel_package}>=9,<10"'),)  # fmt: skip


def layout(w: Words) -> tuple[Remedy, ...]:
    found = re.search(r"/\S*libcudnn\S*", w.culprit)
    path = found[0] if found else "/usr/lib/x86_64-linux-gnu/libcudnn.so"
    return (_r("Make the link only when no package owns the name",
               f"dpkg -S {path} || sudo ln -sf libcudnn.so.9 {path}", root=True),)  # fmt: skip
