"""Remedies for the driver, the GPU, containers, packages, downloads and builds."""

# Shell lines stay whole, so that they can be found and read as they are typed.
# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Callable

from cudnn_doctor.checks.model import Remedy
from cudnn_doctor.explain import remedies_access as access
from cudnn_doctor.explain import remedies_packages as packages
from cudnn_doctor.explain.wording import Words

Maker = Callable[[Words], tuple[Remedy, ...]]


def _r(title: str, *commands: str, root: bool = False, auto: bool = False) -> Remedy:
    return Remedy(title=title, commands=commands, needs_root=root, automatic=auto)


def _fixed(*remedies: Remedy) -> Maker:
    return lambda words: remedies


def _driver_commands(w: Words, branch: str) -> tuple[str, ...]:
    return {
        "apt": (f"sudo apt-get install nvidia-driver-{branch} && sudo reboot",),
        "dnf": ("sudo dnf install nvidia-open   # from NVIDIA's repository", "sudo reboot"),
        "zypper": ("sudo zypper install nvidia-open", "sudo reboot"),
        "pacman": ("sudo pacman -S nvidia-open && sudo reboot",),
    }.get(w.case.facts.manager, (f"# install NVIDIA driver {branch} or later, then reboot",))


def _driver_too_old(w: Words) -> tuple[Remedy, ...]:
    if w.case.facts.wsl:
        return (
            _r(
                "Update the driver on Windows, not in WSL",
                "wsl --shutdown   # afterwards, in Windows",
            ),
        )
    need = "580" if w.cuda_major == "13" else "535"
    return (
        _r("Install a newer driver and reboot", "cat /proc/driver/nvidia/version",
           *_driver_commands(w, need), root=True),
        _r("Or take a build for the CUDA that this driver supports",
           "pip install torch --index-url https://download.pytorch.org/whl/cu118"),
    )  # fmt: skip


def _ptx(w: Words) -> tuple[Remedy, ...]:
    return (
        _r("Upgrade the driver to one as new as the PTX (for CUDA 12.2: 535.104 or later)",
           *_driver_commands(w, "535"), root=True),
        _r("Or take a build that has native code for this GPU"),
    )  # fmt: skip


def _mismatch(w: Words) -> tuple[Remedy, ...]:
    branch = w.case.facts.driver_branch
    for seen in w.case.seen("driver-upgraded"):
        branch = branch or seen.get("branch")
    hold = f'sudo apt-mark hold "nvidia-*-{branch}" "libnvidia-*-{branch}"' if branch else ""
    found = [
        _r("Reboot, so that the new kernel module is loaded", "sudo reboot", root=True),
        _r("Or without a reboot, when nothing uses the GPU",
           "sudo rmmod nvidia_drm nvidia_modeset nvidia_uvm nvidia && sudo modprobe nvidia", root=True),
    ]  # fmt: skip
    if hold and w.case.facts.manager in ("apt", ""):
        found.append(_r("Keep unattended upgrades off the driver", hold, root=True))
    return tuple(found)


def _compat(w: Words) -> tuple[Remedy, ...]:
    return (
        _r("Remove the compat libraries from the image's search path",
           "rm -rf /usr/local/cuda/compat && ldconfig   # in the image, or drop it from LD_LIBRARY_PATH", root=True),
        _r("Or upgrade the host's driver to the image's CUDA"),
    )  # fmt: skip


def _too_new(w: Words) -> tuple[Remedy, ...]:
    command = f"pip install -U torch --index-url {w.torch_index}"
    capability = w.case.facts.capability
    if capability and capability < (9, 0):
        command = f'pip install -U "torch>=1.9" --index-url {w.torch_index}   # cu111 or later'
    driver = "   # driver 570 or later" if not capability or capability >= (10, 0) else ""
    found = [_r("Take a build with kernels for this GPU", command + driver)]
    if driver:
        found.append(
            _r(
                "And a driver that knows the GPU (570 or later)",
                *_driver_commands(w, "570"),
                root=True,
            )
        )
    return tuple(found)


def _too_old_for_cudnn(w: Words) -> tuple[Remedy, ...]:
    capability = w.case.facts.capability
    if capability and capability < (5, 0):
        return (_r("No cuDNN that is new enough for the program supports this GPU",
                   "# rebuild with USE_CUDNN := 0 (or CPU_ONLY := 1), or run on the CPU"),)  # fmt: skip
    package = w.wheel_package
    return (
        _r("Pin the last cuDNN for this GPU and hold it",
           'sudo apt-get install --allow-downgrades "libcudnn9-cuda-12=9.10.2.21-1" && sudo apt-mark hold libcudnn9-cuda-12',
           root=True),
        _r("In an environment", f'pip install --no-deps "{package}<9.11"', auto=True),
    )  # fmt: skip


def _feature(w: Words) -> tuple[Remedy, ...]:
    return (
        _r("Turn this engine off", "python: torch.backends.cuda.enable_cudnn_sdp(False)"),
        _r(
            "Or build the program without it",
            "make USE_CUDNN=0   # flash, memory-efficient or math attention",
        ),
    )


def _fabric(w: Words) -> tuple[Remedy, ...]:
    branch = w.case.facts.driver_branch or "<driver branch>"
    install = f"sudo apt-get install nvidia-fabricmanager-{branch}"
    if w.case.facts.manager == "dnf":
        install = "sudo dnf install nvidia-fabric-manager"
    return (_r("Install and start the Fabric Manager of the driver's version",
               f"{install} && sudo systemctl enable --now nvidia-fabricmanager", root=True),)  # fmt: skip


def _hidden(w: Words) -> tuple[Remedy, ...]:
    return (
        _r("Show the GPU to the process", "unset CUDA_VISIBLE_DEVICES", "nvidia-smi -L"),
        _r(
            "If the compute mode is exclusive or prohibited",
            "sudo nvidia-smi -c DEFAULT",
            root=True,
        ),
    )


def _jetson(w: Words) -> tuple[Remedy, ...]:
    pack = w.case.facts.machine.driver.jetpack or "the JetPack in use"
    what = "onnxruntime-gpu" if w.case.facts.uses("onnxruntime") else "the framework"
    return (_r(f"Take {what} from the Jetson index of {pack}",
               f"pip install --index-url <the Jetson index of {pack}> {what}   # onnxruntime-gpu: 1.20 or later for JetPack 6.1"),)  # fmt: skip


def _compose(w: Words) -> tuple[Remedy, ...]:
    return (
        _r("Give the container the GPU", "docker run --gpus all ..."),
        _r("In a compose file",
           "compose: deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}]}}}"),
        _r("Where the toolkit is not set up on the host",
           "sudo apt-get install nvidia-container-toolkit && sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker",
           root=True),
    )  # fmt: skip


def _desktop(w: Words) -> tuple[Remedy, ...]:
    remove = {
        "apt": "sudo apt-get remove docker-desktop",
        "pacman": "sudo pacman -R docker-desktop",
    }
    return (
        _r("Use the host's own Docker engine", "docker context use default   # with docker-ce installed"),
        _r("Or remove Docker Desktop", remove.get(w.case.facts.manager, "sudo dnf remove docker-desktop"), root=True),
    )  # fmt: skip


def _memory(w: Words) -> tuple[Remedy, ...]:
    found = [_r("See who holds the memory", "nvidia-smi --query-gpu=memory.used,memory.total --format=csv",
                "# fewer processes, or a smaller batch")]  # fmt: skip
    if w.case.facts.uses("jax"):
        found.append(
            _r(
                "JAX",
                "export XLA_PYTHON_CLIENT_PREALLOCATE=false   # or XLA_PYTHON_CLIENT_MEM_FRACTION=.7",
            )
        )
    elif w.case.seen("cudnn-handle") or w.case.facts.uses("tensorflow"):
        found.append(_r("TensorFlow", "export TF_FORCE_GPU_ALLOW_GROWTH=true"))
    if w.case.facts.uses("caffe", "darknet"):
        found.append(_r("Or update the program: newer ones limit the work space"))
    return tuple(found)


def _glibc(w: Words) -> tuple[Remedy, ...]:
    return (
        _r("Use a container with a newer system", "docker run --gpus all -it nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04"
           "   # or apptainer"),
        _r("Or the last release for this glibc", "cudnn-doctor install --method tarball --version 8.9"),
    )  # fmt: skip


def _static_tls(w: Words) -> tuple[Remedy, ...]:
    path = w.culprit or "<the library>"
    return (
        _r(
            "Load it at the start",
            f"export LD_PRELOAD={path}   # for Jupyter: put it in kernel.json",
        ),
    )


def _conv3d(w: Words) -> tuple[Remedy, ...]:
    return (
        _r("Newer cuDNN, with a torch that looks at the version (2.9.1)",
           f'pip install --no-deps "{w.wheel_package}>=9.15"   # torch must be 2.9.1', auto=True),
        _r("Or a newer torch", 'pip install -U "torch>=2.10"'),
    )  # fmt: skip


def _known_bad(w: Words) -> tuple[Remedy, ...]:
    name = (w.culprit.split() or ["torch"])[0]
    version = "1.8.1" if "1.8.0" in w.culprit else ""
    return (
        _r(
            "Take the release that mends it",
            f'pip install "{name}=={version}"' if version else f"pip install -U {name}",
        ),
    )


def _stub(w: Words) -> tuple[Remedy, ...]:
    return (_r("Drop the stubs folder from LD_LIBRARY_PATH",
               'export LD_LIBRARY_PATH=$(echo "$LD_LIBRARY_PATH" | tr ":" "\\n" | grep -v stubs | paste -sd:)'),)  # fmt: skip


def _undecided(w: Words) -> tuple[Remedy, ...]:
    return (
        _r("See what the loader does on that machine", "cudnn-doctor check",
           'LD_DEBUG=libs <program> 2>&1 | grep -E "cudnn|error"'),
    )  # fmt: skip


def _cublas(w: Words) -> tuple[Remedy, ...]:
    return (
        _r("Take the other release off LD_LIBRARY_PATH", "unset LD_LIBRARY_PATH"),
        _r(
            "Or put the wheel's folder first",
            "export LD_LIBRARY_PATH=<site-packages>/nvidia/cublas/lib:$LD_LIBRARY_PATH",
        ),
    )


TABLE: dict[str, Maker] = {
    "driver-too-old": _driver_too_old,
    "driver-not-installed": lambda w: access.no_driver(
        w, _r("Install the driver and reboot", *_driver_commands(w, "580"), root=True)),
    "no-nvidia-gpu": _fixed(_r("Run on the CPU, or on a machine with an NVIDIA GPU", "lspci | grep -i nvidia   # nothing",
        "pip install torch --index-url https://download.pytorch.org/whl/cpu")),
    "ptx-newer-than-driver": _ptx,
    "driver-user-kernel-mismatch": _mismatch,
    "compat-libcuda-on-geforce": _compat,
    "gpu-too-new-for-build": _too_new,
    "gpu-too-old-for-cudnn": _too_old_for_cudnn,
    "gpu-too-old": _fixed(_r("Take the last release of the framework for this GPU (cu126 or cu118 build)",
                             "pip install torch --index-url https://download.pytorch.org/whl/cu126")),
    "cudnn-feature-unsupported-on-gpu": _feature,
    "uvm-module-wedged": _fixed(
        _r("Reload the module", "sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm", root=True),
        _r("Lasting: keep video memory over suspend",
           "echo 'options nvidia NVreg_PreserveVideoMemoryAllocations=1' | sudo tee /etc/modprobe.d/nvidia-power.conf",
           root=True)),
    "fabricmanager-missing": _fabric,
    "mig-one-instance": _fixed(
        _r("Run the program itself on one instance, by UUID", "nvidia-smi -L", "CUDA_VISIBLE_DEVICES=MIG-<uuid> <program>"),
        _r("And start one rank for each visible instance")),
    "out-of-memory-masked": _memory,
    "tf-memory-growth": _fixed(_r("Let TensorFlow's memory grow", "export TF_FORCE_GPU_ALLOW_GROWTH=true")),
    "gpu-hidden": _hidden,
    "jetson-package-mismatch": _jetson,
    "container-without-gpu": _compose,
    "docker-desktop-context": _desktop,
    "device-nodes-missing": _fixed(_r("Create the nodes", "sudo modprobe nvidia_uvm", "sudo nvidia-modprobe -c 0 -u", root=True)),
    "cgroup-device-revoked": _fixed(
        _r("Restart the container", "docker restart <container>"),
        _r("Lasting: make the links that systemd looks for",
           "sudo nvidia-ctk system create-dev-char-symlinks --create-all", root=True)),
    "toolkit-config-no-cgroups": _fixed(
        _r("Rootless: switch the toolkit's cgroups off",
           "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=true --in-place", root=True),
        _r("Rootful docker: switch them on",
           "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=false --in-place && sudo systemctl restart docker",
           root=True)),
    "selinux-denies-gpu": access.selinux,
    "permission-denied": access.permission,
    "apt-version-pin-conflict": packages.apt_pin,
    "apt-wrong-distro-repo": packages.apt_repo,
    "apt-repos-mixed": _fixed(_r("Keep one of the two sources",
        "sudo apt-get remove nvidia-cudnn nvidia-cuda-toolkit", "grep -rln nvidia /etc/apt/sources.list.d   # keep one entry",
        "sudo apt-get update && sudo apt-get -f install", root=True)),
    "rpm-repo-conflict": _fixed(
        _r("Modular filtering: switch the module off", "sudo dnf module disable nvidia-driver", root=True),
        _r("Otherwise: keep one source", "dnf repolist", "sudo dnf install --disablerepo=<the other> <package>", root=True)),
    "package-layout-change": packages.layout,
    "pip-pin-conflict": packages.placeholder_pin,
    "index-lacks-pinned-version": packages.index,
    "download-corrupt": packages.corrupt,
    "network-blocked": access.network,
    "tmp-full": _fixed(_r("Unpack on a large file system",
        'mkdir -p "$HOME/tmp" && TMPDIR="$HOME/tmp" pip install --no-cache-dir <package>', auto=True)),
    "disk-full": _fixed(_r("Make room", "df -h; pip cache purge; docker system df   # then again")),
    "read-only-target": access.not_writable,
    "known-bad-release": _known_bad,
    "dev-headers-wrong-path": packages.headers,
    "cmake-variable-wrong": _fixed(_r("A file for the library, a folder for the headers",
        "cmake -D CUDNN_LIBRARY=<folder>/libcudnn.so -D CUDNN_INCLUDE_DIR=<folder of cudnn.h> ...")),
    "other-cuda-lib-missing": packages.cuda_lib,
    "cudnn-cuda-major-mismatch": packages.cudnn_cuda,
    "cuda-major-mismatch": packages.cuda_major,
    "libnvrtc-missing": packages.nvrtc,
    "libnvrtc-shadowed-old": _fixed(_r("Take the older one off the path", "unset LD_LIBRARY_PATH", "ldconfig -p | grep nvrtc")),
    "libcuda-unversioned-missing": packages.libcuda,
    "libcuda-stub-shadow": _stub,
    "cublas-shadowed": _cublas,
    "musl-libc": _fixed(_r("Use a glibc image", "FROM python:3.12-slim-bookworm   # or nvidia/cuda:*-cudnn-runtime-ubuntu*")),
    "glibc-too-old": _glibc,
    "static-tls": _static_tls,
    "cudnn-version-wrong-results": _fixed(
        _r("Compute in float32, or update torch", "pip install -U torch   # or run without half precision")),
    "cudnn-version-performance": _conv3d,
    "bundled-copy-wins": access.bundled,
    "cudnn-heuristic-regression": access.heuristic,
    "cudnn-version-regression": access.regression,
    "known-nondeterminism": _fixed(_r("Ask for deterministic engines", "python: torch.use_deterministic_algorithms(True)",
        "export CUBLAS_WORKSPACE_CONFIG=:4096:8")),
    "benign-noise": _fixed(_r("Nothing to fix; if something fails, its reason is in another line")),
    "insufficient-evidence": _undecided,
}  # fmt: skip
