"""Remedies: exact commands for one diagnosis on this machine."""

# Shell lines stay whole, so that they can be found and read as they are typed.
# ruff: noqa: E501

from __future__ import annotations

import re
from collections.abc import Callable

from cudnn_doctor.checks.model import Remedy
from cudnn_doctor.explain.case import Case
from cudnn_doctor.explain.wording import Words

_TABLE: dict[str, Callable[[Words], tuple[Remedy, ...]]] = {}


def remedies_for(diagnosis: str, case: Case) -> tuple[Remedy, ...]:
    """The ways to mend ``diagnosis``, best first."""
    from cudnn_doctor.explain import remedies_system

    words = Words(case, diagnosis)
    maker = _TABLE.get(diagnosis) or remedies_system.TABLE.get(diagnosis)
    return maker(words) if maker else ()


def _for(*names: str) -> Callable[[Callable[[Words], tuple[Remedy, ...]]], None]:
    def register(maker: Callable[[Words], tuple[Remedy, ...]]) -> None:
        for name in names:
            _TABLE[name] = maker

    return register


def _r(title: str, *commands: str, root: bool = False, auto: bool = False) -> Remedy:
    return Remedy(title=title, commands=commands, needs_root=root, automatic=auto)


@_for("cudnn-not-on-loader-path")
def _not_on_path(w: Words) -> tuple[Remedy, ...]:
    folder = w.hidden_folder
    found = []
    if "site-packages" in folder or (w.pythonic and not folder):
        found.append(_r("Put the wheel's folders on LD_LIBRARY_PATH before the start",
                        w.export_wheel_path))  # fmt: skip
        found.append(_r("Or load cuDNN first in Python", "python: import torch  # before the other library",
                        "python: onnxruntime.preload_dlls()  # onnxruntime >= 1.21"))  # fmt: skip
    elif folder:
        if w.case.facts.machine.environ.get("LOADEDMODULES") or "/apps/" in folder:
            found.append(
                _r("Load the cuDNN module last", "module unload cudnn && module load cudnn")
            )
        found.append(_r("Make the folder known to the loader",
                        f"echo {folder} | sudo tee /etc/ld.so.conf.d/cudnn.conf && sudo ldconfig",
                        root=True, auto=True))  # fmt: skip
        found.append(
            _r("Or for one session", f'export LD_LIBRARY_PATH="{folder}:$LD_LIBRARY_PATH"')
        )
    else:
        found.append(_r("Put the folder that holds it on LD_LIBRARY_PATH", w.export_wheel_path))
    if w.case.seen("gpu-libraries-not-loaded"):
        found.append(
            _r("Name the library", 'TF_CPP_MAX_VLOG_LEVEL=3 python -c "import tensorflow"')
        )
    return tuple(found)


@_for("cudnn-not-installed")
def _not_installed(w: Words) -> tuple[Remedy, ...]:
    found = [_r("Install it into the environment", f"pip install {w.cudnn_wheel}", auto=True)]
    if w.case.facts.uses("onnxruntime"):
        found[0] = _r("Install it into the environment and preload it", f"pip install {w.cudnn_wheel}",
                      "python: onnxruntime.preload_dlls()", auto=True)  # fmt: skip
    found += w.system_install
    found.append(_r("Or let cudnn-doctor fetch it, verify its SHA-256 and unpack it",
                    w.prefix_install, auto=True))  # fmt: skip
    return tuple(found)


@_for("cudnn-major-mismatch")
def _major(w: Words) -> tuple[Remedy, ...]:
    want = w.major or 9
    found = []
    if w.case.facts.uses("ctranslate2", "whisper"):
        if want >= 9:
            found.append(_r("Pin the release for cuDNN 8", 'pip install "ctranslate2==4.4.0"'))
            found.append(_r("Or move torch to cuDNN 9", 'pip install -U "torch>=2.4"'))
        else:
            found.append(_r("Take the release for cuDNN 9", 'pip install -U "ctranslate2>=4.5"'))
    elif w.case.facts.uses("onnxruntime"):
        other = '"onnxruntime-gpu>=1.19"' if want < 9 else '"onnxruntime-gpu<1.19"'
        found.append(_r(f"Add cuDNN {want}", f"pip install {w.cudnn_wheel}", auto=True))
        found.append(
            _r("Or take the onnxruntime of the cuDNN that is there", f"pip install {other}")
        )
    else:
        found.append(
            _r(f"Install cuDNN {want} beside it", f"pip install {w.cudnn_wheel}", auto=True)
        )
        found += w.system_install
    return tuple(found)


@_for(
    "cudnn-install-incomplete",
    "cudnn-file-damaged",
    "cudnn-wrong-architecture",
    "cudnn-dangling-link",
)
def _incomplete(w: Words) -> tuple[Remedy, ...]:
    if w.wheel_version or w.pythonic:
        commands = (f"pip install --force-reinstall --no-deps {w.exact_wheel}",)
        found = [_r("Reinstall the whole package", *commands, auto=True)]
        if w.case.facts.uses("torch"):
            found.append(_r("Or reinstall torch, where it carries cuDNN itself",
                            "pip install --force-reinstall --no-cache-dir torch"))  # fmt: skip
    else:
        found = w.system_reinstall
    found.append(_r("Or put the file of the SAME version beside libcudnn_graph.so.9"))
    return tuple(found)


@_for("cudnn-wheel-incomplete")
def _wheel_incomplete(w: Words) -> tuple[Remedy, ...]:
    package = w.wheel_package
    return (
        _r("Take the next release, which is whole",
           f'pip install --no-deps "{package}>{".".join(w.wheel_version.split(".")[:3]) or "9.20"}.99"'
           if not w.wheel_version.startswith("9.20") else f'pip install --no-deps "{package}>=9.21"',
           auto=True),
        _r("Or remove the system's cuDNN, so that nothing is fallen through to", *w.remove_system, root=True),
    )  # fmt: skip


@_for("wheel-files-missing")
def _files_missing(w: Words) -> tuple[Remedy, ...]:
    return (_r("Reinstall the wheel whatever its records say",
               f"pip install --force-reinstall --no-deps --no-cache-dir {w.exact_wheel}", auto=True),)  # fmt: skip


@_for("wheel-no-unversioned-so")
def _unversioned(w: Words) -> tuple[Remedy, ...]:
    major = w.major or 9
    folder = w.hidden_folder or "<site-packages>/nvidia/cudnn/lib"
    return (
        _r(
            "Make the link beside the library",
            f"ln -s libcudnn.so.{major} {folder}/libcudnn.so",
            auto=True,
        ),
        _r("Or install the development package", *w.dev_install, root=True),
    )


@_for("cudnn-fake-symlink")
def _fake(w: Words) -> tuple[Remedy, ...]:
    path = w.culprit.split(" -> ")[0] or "<the link>"
    return (
        _r(
            "Remove the link and install cuDNN",
            f"sudo rm {path}",
            *w.system_commands,
            "sudo ldconfig",
            root=True,
        ),
        _r("Or install it into the environment", f"pip install {w.cudnn_wheel}"),
    )


@_for("cudnn-symlink-flattened")
def _flattened(w: Words) -> tuple[Remedy, ...]:
    folder = w.culprit.rpartition("/")[0] or "<folder>"
    return (
        _r("Unpack the archive again with its links", f"sudo rm {folder}/libcudnn*",
           f"sudo cp -P <archive>/lib/libcudnn* {folder}/", "sudo ldconfig", root=True),
        _r("Or make each copy a link again", f"cd {folder} && sudo ln -sf libcudnn.so.{w.major or 8}.<minor>.<patch> libcudnn.so.{w.major or 8}",
           root=True),
        _r("Make the folder known to the loader",
           f"echo {folder} | sudo tee /etc/ld.so.conf.d/cudnn.conf && sudo ldconfig", root=True),
    )  # fmt: skip


@_for("pypi-placeholder-package")
def _placeholder(w: Words) -> tuple[Remedy, ...]:
    return (_r("Ask for the real package, by the CUDA major in use", f"pip install nvidia-cudnn-cu{w.cuda_major or 12}"
               f"   # or -cu{13 if w.cuda_major != '13' else 12}", auto=True),)  # fmt: skip


@_for("framework-deps-not-installed")
def _deps(w: Words) -> tuple[Remedy, ...]:
    torch = w.case.facts.framework("torch")
    version = torch.version if torch else ""
    found = []
    if w.case.facts.uses("poetry") or w.case.facts.says("poetry"):
        found.append(
            _r(
                "Lock a release with whole metadata",
                'poetry add "torch==2.0.0"   # or "torch>=2.1"',
            )
        )
    elif w.case.facts.says(r"\buv\b"):
        found.append(
            _r("Sync the environment with its dependencies", "uv sync --reinstall-package torch")
        )
    else:
        found.append(_r("Reinstall with dependencies",
                        f"pip install --force-reinstall torch{'==' + version if version else ''}", auto=True))  # fmt: skip
    if version.startswith("2.0.1"):
        found.append(_r("Stopgap: add them by hand",
                        "pip install nvidia-cudnn-cu11==8.5.0.96 nvidia-cublas-cu11==11.10.3.66"))  # fmt: skip
    else:
        found.append(
            _r(
                "Stopgap: add them by hand",
                f"pip install {w.cudnn_wheel} nvidia-cublas-cu{w.cuda_major or 12}",
            )
        )
    return tuple(found)


@_for("cpu-only-wheel")
def _cpu(w: Words) -> tuple[Remedy, ...]:
    if w.case.facts.uses("onnxruntime") and "torch" not in w.culprit:
        return (_r("Take the GPU build", "pip uninstall -y onnxruntime onnxruntime-gpu",
                   "pip install onnxruntime-gpu"),)  # fmt: skip
    if w.case.facts.uses("jax") and "torch" not in w.culprit:
        return (_r("Take the CUDA build", 'pip install -U "jax[cuda12]"   # or "jax[cuda13]"'),)
    if w.case.facts.uses("paddle") and not w.case.facts.uses("torch"):
        return (
            _r(
                "Take the GPU build",
                "pip uninstall -y paddlepaddle",
                "pip install paddlepaddle-gpu",
            ),
        )
    if w.case.facts.uses("tensorflow") and not w.case.facts.uses("torch"):
        return (_r("Take the CUDA build", 'pip install -U "tensorflow[and-cuda]"'),)
    return (_r("Take torch from the CUDA index of the framework",
               f"pip install --force-reinstall torch --index-url {w.torch_index}"),)  # fmt: skip


@_for("mixed-cudnn-copies")
def _mixed(w: Words) -> tuple[Remedy, ...]:
    found = [_r("Take the foreign copy out of the way", "unset LD_LIBRARY_PATH   # and: module unload cuda cudnn",
                'LD_DEBUG=libs <program> 2>&1 | grep -E "calling init.*cudnn"')]  # fmt: skip
    if w.remove_system and w.system_copy:
        found.append(_r("Or remove the system's cuDNN", *w.remove_system, root=True))
        found.append(_r("Or put the environment's folder first", w.export_wheel_path))
    found.append(_r("Or reinstall the one that the framework pins",
                    f"pip install --force-reinstall --no-deps {w.exact_wheel}", auto=True))  # fmt: skip
    if not w.case.facts.given:
        found.insert(0, _r("See both copies", "cudnn-doctor check"))
    return tuple(found)


@_for("cudnn-mixed-in-one-dir")
def _one_dir(w: Words) -> tuple[Remedy, ...]:
    folder = re.split(r": | of another", w.culprit)[0]
    folder = folder.rpartition("/")[0] if ".so" in folder else folder or "<folder>"
    return (_r("Remove all and unpack one release, links kept", f"sudo rm {folder}/libcudnn*",
               f"sudo cp -P <archive>/lib/libcudnn* {folder}/", "sudo ldconfig", root=True),)  # fmt: skip


@_for("cudnn-wheel-clobbered")
def _clobbered(w: Words) -> tuple[Remedy, ...]:
    name, version = w.wanted_twin
    return (
        _r("Install the wanted one last", f"pip install --force-reinstall --no-deps {name}=={version}"
           if version else f"pip install --force-reinstall --no-deps {name}", auto=True),
        _r("Lasting: frameworks of different CUDA majors in separate environments",
           f"# or torch from the index of the same CUDA major: {w.torch_index}"),
    )  # fmt: skip


@_for("ld-library-path-shadow")
def _shadow(w: Words) -> tuple[Remedy, ...]:
    path = w.case.facts.ld_path or ()
    conda = next((p for p in path if "CONDA" in p or "conda" in p), "")
    found = [_r("Take the folder off LD_LIBRARY_PATH", "unset LD_LIBRARY_PATH"
                "   # and look in ~/.bashrc, /etc/environment, /etc/profile.d")]  # fmt: skip
    if len(path) > 1 and conda:
        rest = [p for p in path if p != conda]
        found.insert(0, _r("Put the right folder first",
                           f'export LD_LIBRARY_PATH="{":".join([*rest, conda])}"'))  # fmt: skip
        found.append(_r("Or remove conda's copy", "conda remove --force cudnn"))
    if w.case.facts.uses("ctranslate2", "whisper"):
        found.insert(0, _r("Point LD_LIBRARY_PATH at the wheel's folder instead, which serves both",
                           w.export_wheel_only))  # fmt: skip
    folder = next((p for p in path if "cuda" in p), "")
    if folder and not conda:
        found.append(_r("Or remove the copy there", f"sudo rm {folder}/libcudnn*", root=True))
    return tuple(found)


@_for("cudnn-older-than-framework-build")
def _older(w: Words) -> tuple[Remedy, ...]:
    need = w.built_version
    spec = f">={need}" if need else ""
    if w.conda:
        return (_r("Upgrade it in the environment", f'conda install -c conda-forge "cudnn{spec}"'),)
    return (
        _r(
            "Upgrade cuDNN within its major",
            f'pip install -U --no-deps "{w.wheel_package}{spec}"',
            auto=True,
        ),
        *w.system_install,
    )


@_for("cudnn-framework-version-mismatch")
def _exact(w: Words) -> tuple[Remedy, ...]:
    need = w.built_version or "<the version it was built with>"
    major = need.split(".")[0]
    found = []
    if w.conda or (not w.case.facts.copies and not w.case.facts.manager):
        found.append(_r("Install that very release", f"conda install cudnn={need}"))
    if not w.conda:
        cuda = w.image_cuda or "<CUDA>"
        spec = f"libcudnn{major}={need}.*-1+cuda{cuda}"
        found.insert(0, _r("Install that release and hold it",
                     f"sudo apt-get install --allow-downgrades {spec} {spec.replace('=', '-dev=', 1)}"
                     f" && sudo apt-mark hold libcudnn{major}", root=True))  # fmt: skip
    found.append(_r("Or a newer framework, which accepts higher minors"))
    return tuple(found)


@_for("framework-built-with-older-cudnn")
def _built(w: Words) -> tuple[Remedy, ...]:
    name = (
        "jaxlib"
        if w.case.facts.uses("jax")
        else "tensorflow"
        if w.case.facts.uses("tensorflow")
        else "torch"
    )
    return (_r("Take a build of the framework made with a newer cuDNN", f'pip install -U "{name}"'
               "   # the build for the newest cuDNN"),)  # fmt: skip


@_for("header-library-mismatch")
def _headers(w: Words) -> tuple[Remedy, ...]:
    return (
        _r("Remove the odd one and build anew", "conda remove --force cudnn   # it ships no headers",
           "python setup.py clean   # or: remove the build folder", "# then build again"),
        _r("Or use headers and library of one release", *w.dev_install, root=True),
    )  # fmt: skip
