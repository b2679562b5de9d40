"""Library files and copies found on real folders: wheels by pip, packages, bundles, odd files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.elf import build_library
from support.fakewheels import (
    build_wheel,
    cudnn_folder,
    cudnn_libraries,
    cudnn_wheel,
    install,
    make_venv,
    torch_wheel,
)

from cudnn_doctor.machine.copies import probe_copies
from cudnn_doctor.machine.environments import probe_environments
from cudnn_doctor.machine.frameworks import probe_frameworks
from cudnn_doctor.machine.headers import probe_headers
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.libraries import probe_libraries
from cudnn_doctor.machine.loaderconfig import probe_loader
from cudnn_doctor.machine.model import CudnnCopy, Library


def look(*python: Path, **environ: object) -> tuple[dict[str, Library], dict[str, CudnnCopy]]:
    """Libraries by path and copies by folder, of this machine with these environments."""
    variables = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    host = Host(environ={**variables, **{k: str(v) for k, v in environ.items()}})
    environments = probe_environments(host, [str(p) for p in python])
    frameworks = probe_frameworks(host, environments)
    loader = probe_loader(host)
    libraries = probe_libraries(host, environments, frameworks, (), loader)
    headers = probe_headers(host, environments, ())
    copies = probe_copies(host, libraries, environments, (), headers)
    assert host.failures == []
    return {lib.path: lib for lib in libraries}, {c.folder: c for c in copies}


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    make_venv(tmp_path / "venv")
    return tmp_path / "venv"


def site(venv: Path) -> Path:
    return next((venv / "lib").glob("python*/site-packages"))


def test_a_wheel_is_owned_versioned_and_flavoured(venv: Path, tmp_path: Path) -> None:
    install(venv, cudnn_wheel(tmp_path / "w", "9.10.2.21"), torch_wheel(tmp_path / "w"))
    libraries, copies = look(venv)
    copy = copies[str(site(venv) / "nvidia/cudnn/lib")]
    assert (copy.version, copy.version_from, copy.cuda) == ("9.10.2.21", "wheel", "12")
    assert (copy.kind, copy.shim, copy.environment) == ("wheel", "libcudnn.so.9", str(venv))
    assert [(o.kind, o.name) for o in copy.owners] == [("wheel", "nvidia-cudnn-cu12")]
    assert set(copy.files) == set(cudnn_libraries("9.10.2.21"))
    torch = libraries[str(site(venv) / "torch/lib/libtorch_global_deps.so")]
    assert torch.rpath is not None
    assert "libcudnn.so.9" in torch.needed


@pytest.mark.parametrize("told_by", ["wheel", "header"])
def test_a_copy_on_the_path_and_in_no_environment_has_a_version(
    told_by: str, venv: Path, tmp_path: Path
) -> None:
    install(venv, cudnn_wheel(tmp_path / "w", "9.10.2.21"))
    loose = tmp_path / "loose"
    loose.mkdir()
    for part in ("nvidia", *(["nvidia_cudnn_cu12-9.10.2.21.dist-info"] * (told_by == "wheel"))):
        (site(venv) / part).rename(loose / part)
    folder = loose / "nvidia/cudnn/lib"
    include = folder.parent / "include"
    include.mkdir(exist_ok=True)
    macros = (("MAJOR", 9), ("MINOR", 10), ("PATCHLEVEL", 2))
    text = "".join(f"#define CUDNN_{name} {number}\n" for name, number in macros)
    (include / "cudnn_version.h").write_text(text)
    _, copies = look(LD_LIBRARY_PATH=folder)
    copy = copies[str(folder)]
    wanted = "9.10.2.21" if told_by == "wheel" else "9.10.2"
    assert (copy.version, copy.version_from) == (wanted, told_by)


def test_a_replaced_file_loses_the_wheels_version(venv: Path, tmp_path: Path) -> None:
    install(venv, cudnn_wheel(tmp_path / "w", "9.10.2.21"))
    target = site(venv) / "nvidia/cudnn/lib/libcudnn_ops.so.9"
    build_library(target, soname=target.name, source="int other[5000] = {1};")
    libraries, copies = look(venv)
    assert libraries[str(target)].version is None
    copy = copies[str(target.parent)]
    assert copy.version == "9.10.2.21"
    assert "libcudnn_ops.so.9" not in copy.file_versions


def test_two_wheels_over_one_folder(venv: Path, tmp_path: Path) -> None:
    first = cudnn_wheel(tmp_path / "w", "9.10.2.21", "12")
    second = cudnn_wheel(tmp_path / "w", "9.24.0.43", "13")
    install(venv, first)
    install(venv, second)
    _, copies = look(venv)
    copy = copies[str(site(venv) / "nvidia/cudnn/lib")]
    assert {o.name for o in copy.owners} == {"nvidia-cudnn-cu12", "nvidia-cudnn-cu13"}
    assert copy.version == "9.24.0.43"


def test_package_layout_on_ld_library_path(tmp_path: Path) -> None:
    folder = cudnn_folder(tmp_path / "lib", "9.14.0")
    (folder / "libcudnn_ops_static_v9.a").write_bytes(b"!<arch>\n")
    libraries, copies = look(LD_LIBRARY_PATH=folder)
    copy = copies[str(folder)]
    assert (copy.version, copy.version_from) == ("9.14.0", "file name")
    assert (copy.kind, copy.owners) == ("ld_library_path", ())
    assert copy.static_archives == ("libcudnn_ops_static_v9.a",)
    link = libraries[f"{folder}/libcudnn.so"]
    assert (link.link, link.real) == ("libcudnn.so.9", f"{folder}/libcudnn.so.9.14.0")
    assert copy.file_versions["libcudnn_ops.so.9"] == "9.14.0"


def test_mixed_releases_in_one_folder_have_no_version(tmp_path: Path) -> None:
    folder = cudnn_folder(tmp_path / "lib", "9.14.0")
    (folder / "libcudnn_ops.so.9").unlink()
    shutil.copy(cudnn_libraries("9.10.2")["libcudnn_ops.so.9"], folder / "libcudnn_ops.so.9.10.2")
    (folder / "libcudnn_ops.so.9").symlink_to("libcudnn_ops.so.9.10.2")
    copy = look(LD_LIBRARY_PATH=folder)[1][str(folder)]
    assert copy.version is None
    assert copy.file_versions["libcudnn_ops.so.9"] == "9.10.2"
    assert copy.file_versions["libcudnn_cnn.so.9"] == "9.14.0"


def test_two_majors_in_one_folder_are_two_copies(tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    cudnn_folder(folder, "8.9.7")
    for name in list(folder.iterdir()):
        if name.suffix == ".so":
            name.unlink()
    cudnn_folder(folder, "9.10.2")
    variables = {"PATH": "/bin", "LD_LIBRARY_PATH": str(folder)}
    host = Host(environ=variables)
    libraries = probe_libraries(host, (), (), (), probe_loader(host))
    copies = probe_copies(host, libraries, (), (), ())
    assert {(c.major, c.version) for c in copies} == {(8, "8.9.7"), (9, "9.10.2")}


def test_header_tells_the_version_of_a_prefix(tmp_path: Path) -> None:
    lib = tmp_path / "prefix" / "lib"
    lib.mkdir(parents=True)
    for name, path in cudnn_libraries("9.10.2").items():
        shutil.copy(path, lib / name)
    include = tmp_path / "prefix" / "include"
    include.mkdir()
    text = "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 10\n#define CUDNN_PATCHLEVEL 2\n"
    (include / "cudnn_version.h").write_text(text)
    copy = look(CUDNN_PATH=tmp_path / "prefix")[1][str(lib)]
    assert (copy.version, copy.version_from, copy.kind) == ("9.10.2", "header", "prefix")


def test_the_cuda_flavour_is_read_from_the_parts(tmp_path: Path) -> None:
    folder = cudnn_folder(tmp_path / "lib", "9.10.2")
    source = 'const char *const blas = "libcublasLt.so.13"; const char *f(void) { return blas; }'
    build_library(folder / "libcudnn_adv.so.9.10.2", soname="libcudnn_adv.so.9", source=source)
    assert look(LD_LIBRARY_PATH=folder)[1][str(folder)].cuda == "13"


def test_dangling_fake_truncated_and_foreign_files(tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    good = cudnn_libraries("9.10.2")["libcudnn_ops.so.9"].read_bytes()
    (folder / "libcudnn.so.9").symlink_to("libcudnn.so.9.9.9")
    (folder / "libcudnn_ops.so.9").write_bytes(good[:1000])
    foreign = bytearray(good)
    foreign[18:20] = (183).to_bytes(2, "little")
    (folder / "libcudnn_cnn.so.9").write_bytes(foreign)
    (folder / "libcudnn_graph.so.9").write_text("version https://git-lfs.github.com/spec/v1\n" * 3)
    libc = next(
        p for p in ("/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6") if Path(p).exists()
    )
    (folder / "libcudnn_adv.so.9").symlink_to(libc)
    libraries, copies = look(LD_LIBRARY_PATH=folder)
    at = {p.rpartition("/")[2]: lib for p, lib in libraries.items() if p.startswith(str(folder))}
    assert at["libcudnn.so.9"].status == "dangling"
    assert at["libcudnn_ops.so.9"].status == "truncated"
    assert at["libcudnn_cnn.so.9"].machine == "aarch64"
    assert at["libcudnn_graph.so.9"].status == "not-elf"
    assert (at["libcudnn_adv.so.9"].soname, at["libcudnn_adv.so.9"].version) == ("libc.so.6", None)
    assert copies[str(folder)].shim is None


def test_a_bundled_shim_is_private(venv: Path, tmp_path: Path) -> None:
    renamed = build_library(tmp_path / "libcudnn-1a2b3c4d.so.9.1.0", rpath="$ORIGIN", tag="rpath")
    files = {f"ctranslate2.libs/{renamed.name}": renamed, "ctranslate2/__init__.py": ""}
    install(venv, build_wheel(tmp_path / "w", "ctranslate2", "4.5.0", files))
    _, copies = look(venv)
    copy = copies[str(site(venv) / "ctranslate2.libs")]
    assert (copy.private, copy.shim, copy.kind) == (True, renamed.name, "bundled")
    assert copy.version == "9.1.0"


def test_one_folder_under_two_names_is_one_copy(tmp_path: Path) -> None:
    folder = cudnn_folder(tmp_path / "cudnn-9" / "lib", "9.10.2")
    (tmp_path / "cudnn").symlink_to("cudnn-9")
    libraries, copies = look(LD_LIBRARY_PATH=f"{tmp_path}/cudnn/lib:{folder}")
    assert [c for c in copies if c.startswith(str(tmp_path))] == [str(folder)]
    assert libraries[f"{tmp_path}/cudnn/lib/libcudnn.so.9"].real == f"{folder}/libcudnn.so.9.10.2"


@pytest.mark.parametrize(
    ("place", "environ", "kind"),
    [
        ("opt/spack/linux-x86_64/gcc-12/cudnn-9.2.0-abc/lib", {"SPACK_ROOT": "."}, "spack"),
        ("eb/software/cuDNN/9.10.2-CUDA-12/lib", {"EASYBUILD_INSTALLPATH": "eb"}, "easybuild"),
        ("home/.local/share/cudnn-doctor/9.10.2/lib", {"HOME": "home"}, "prefix"),
        ("m/cudnn/lib", {"LD_LIBRARY_PATH": "m/cudnn/lib", "LOADEDMODULES": "cudnn/9"}, "module"),
        ("usr/local/cuda-12.8/lib64", {"CUDA_HOME": "usr/local/cuda-12.8"}, "toolkit"),
        ("any/root/lib64", {"CUDNN_ROOT": "any/root"}, "prefix"),
    ],
)
def test_where_copies_are_found(
    tmp_path: Path, place: str, environ: dict[str, str], kind: str
) -> None:
    folder = cudnn_folder(tmp_path / place, "9.10.2")
    variables = {k: v if k == "LOADEDMODULES" else str(tmp_path / v) for k, v in environ.items()}
    copy = look(**variables)[1][str(folder)]
    assert (copy.kind, copy.version) == (kind, "9.10.2")


def test_a_mounted_root_is_read_inside_itself(tmp_path: Path) -> None:
    root = tmp_path / "root"
    real = cudnn_folder(root / "usr/lib/x86_64-linux-gnu", "9.14.0")
    (real / "libcudnn.so").unlink()
    (root / "etc/alternatives").mkdir(parents=True)
    (root / "etc/alternatives/libcudnn_so").symlink_to("/usr/lib/x86_64-linux-gnu/libcudnn.so.9")
    (real / "libcudnn.so").symlink_to("/etc/alternatives/libcudnn_so")
    (root / "lib").symlink_to("usr/lib")
    host = Host(str(root))
    loader = probe_loader(host)
    libraries = {lib.path: lib for lib in probe_libraries(host, (), (), (), loader)}
    link = libraries["/usr/lib/x86_64-linux-gnu/libcudnn.so"]
    assert link.real == "/usr/lib/x86_64-linux-gnu/libcudnn.so.9.14.0"
    copies = probe_copies(host, tuple(libraries.values()), (), (), ())
    assert [(c.folder, c.kind) for c in copies] == [("/usr/lib/x86_64-linux-gnu", "system")]
    assert "/lib/x86_64-linux-gnu/libcudnn.so.9" in libraries


def test_the_search_is_linear_in_files(tmp_path: Path) -> None:
    """A hundred library files within the tenth of a second that a check has for them."""
    import time

    folders = [cudnn_folder(tmp_path / f"c{i}", "9.10.2") for i in range(5)]
    host = Host(environ={"LD_LIBRARY_PATH": ":".join(map(str, folders)), "PATH": "/bin"})
    loader = probe_loader(host)
    start = time.perf_counter()
    libraries = probe_libraries(host, (), (), (), loader)
    taken = time.perf_counter() - start
    assert sum(str(tmp_path) in lib.path for lib in libraries) == 120
    assert taken < 0.3, taken
