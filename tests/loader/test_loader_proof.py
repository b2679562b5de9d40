"""The proof of the simulation: real programs under the real ld.so, in random layouts of real files.

Each layout has folders with shims and parts of two releases, with and without search tags, links,
dangling links, files of another architecture and files that are no ELF; the program is found
through DT_NEEDED or opens the shim itself. What the simulation predicts must be what was opened.
"""

from __future__ import annotations

import hashlib
import os
import platform
import random
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.libraries import probe_libraries, read_program
from cudnn_doctor.machine.loader import simulate
from cudnn_doctor.machine.loaderconfig import probe_loader
from cudnn_doctor.machine.loads import Consumer, Load
from cudnn_doctor.machine.model import Library, Machine, System

RELEASES = {"9.10.2": (9, 10, 2), "9.24.0": (9, 24, 0)}
SHIM_PARTS = {"9.10.2": ("graph", "ops"), "9.24.0": ("graph", "ops", "ext")}
ENGINES = {
    "9.10.2": ("engines_precompiled",),
    "9.24.0": ("engines_precompiled", "engines_tensor_ir"),
}
PARTS = ("graph", "ops", "ext", "engines_precompiled", "engines_tensor_ir")
TAGS = {"none": [], "rpath": ["-Wl,--disable-new-dtags"], "runpath": ["-Wl,--enable-new-dtags"]}
OPEN = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
static void *try_names(const char *part, const char **names) {
    for (; *names; names++) {
        void *handle = dlopen(*names, RTLD_NOW);
        struct link_map *map;
        char real[4096];
        if (!handle) continue;
        dlinfo(handle, RTLD_DI_LINKMAP, &map);
        printf("%s %s\n", part, realpath(map->l_name, real) ? real : "?");
        return handle;
    }
    printf("%s -\n", part);
    return 0;
}
"""


def names_code(part: str, version: str) -> str:
    major, minor, patch = RELEASES[version]
    ends = (f".{major}.{minor}.{patch}", f".{major}.{minor}", f".{major}", "")
    listed = ", ".join(f'"libcudnn_{part}.so{end}"' for end in ends)
    return f'{{ const char *n[] = {{{listed}, 0}}; handle = try_names("{part}", n);'


def opener(function: str, parts: tuple[str, ...], version: str) -> str:
    """C source of a library that opens parts in the way of cuDNN 9."""
    calls = ""
    for part in parts:
        calls += names_code(part, version)
        if part == "graph":
            calls += 'if (handle) ((void (*)(void))dlsym(handle, "mark_graph"))();'
            calls += "graph = handle;"
        calls += "}\n"
    after = 'if (graph) ((void (*)(void))dlsym(graph, "open_engines"))();' if not calls else ""
    if function == "open_parts":
        after = 'if (graph) ((void (*)(void))dlsym(graph, "open_engines"))();'
    return (
        f'{OPEN}\nconst char *release_{function} = "{version}";\n'
        f"void {function}(void) {{ void *handle, *graph = 0; (void)handle; {calls} {after} }}\n"
    )


PROGRAM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    void *handle = dlopen("libcudnn.so.9", RTLD_NOW);
    struct link_map *map;
    char real[4096];
    setbuf(stdout, 0);
    if (!handle) { puts("shim -"); return 0; }
    dlinfo(handle, RTLD_DI_LINKMAP, &map);
    printf("shim %s\n", realpath(map->l_name, real) ? real : "?");
    ((void (*)(void))dlsym(handle, "open_parts"))();
    return 0;
}
"""


class Pool:
    """Compiled files: key -> path; the release of each by its digest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[tuple[str, str, str], Path] = {}
        self.release: dict[str, str] = {}
        for version in RELEASES:
            for tag, flags in TAGS.items():
                self.add(
                    "", version, tag, opener("open_parts", SHIM_PARTS[version], version), flags
                )
                source = opener("open_engines", ENGINES[version], version)
                self.add("graph", version, tag, source + "void mark_graph(void) {}", flags)
            for part in PARTS[1:]:
                for tag in ("none", "runpath"):
                    needs = [] if part == "ext" else [self.files["graph", version, "none"]]
                    source = f'const char *v = "{part} {version} {tag}";'
                    self.add(part, version, tag, source, TAGS[tag], needs)

    def add(
        self,
        part: str,
        version: str,
        tag: str,
        source: str,
        flags: list[str],
        needs: list[Path] | None = None,
    ) -> None:
        soname = f"libcudnn{'_' + part if part else ''}.so.9"
        path = self.folder / f"{part or 'shim'}-{version}-{tag}" / soname
        path.parent.mkdir(parents=True)
        tagged = [*flags, "-Wl,-rpath,$ORIGIN"] if flags else []
        command = ["gcc", "-shared", "-fPIC", "-O0", "-x", "c", "-", "-o", str(path)]
        command += [f"-Wl,-soname,{soname}", *tagged, "-x", "none", "-Wl,--no-as-needed"]
        command += ["-Wl,--allow-shlib-undefined", *map(str, needs or [])]
        subprocess.run(command, input=source, text=True, check=True)
        self.files[part, version, tag] = path
        self.release[hashlib.sha256(path.read_bytes()).hexdigest()] = version


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    return Pool(tmp_path_factory.mktemp("pool"))


def place(rng: random.Random, pool: Pool, part: str, folders: list[Path]) -> None:
    """Put something under one of the part's names into one of the folders."""
    folder = rng.choice(folders)
    version = rng.choice(list(RELEASES))
    tags = [tag for p, v, tag in pool.files if (p, v) == (part, version)]
    source = pool.files[part, version, rng.choice(tags)]
    base = f"libcudnn{'_' + part if part else ''}.so"
    name = folder / rng.choice([f"{base}.9", f"{base}.9", f"{base}.{version}", base])
    if name.exists() or name.is_symlink():
        return
    kind = rng.choices(["file", "link", "dangling", "foreign", "text"], [12, 3, 1, 1, 1])[0]
    if kind == "file":
        shutil.copy(source, name)
    elif kind == "link":
        target = rng.choice(folders) / f"{base}.{version}"
        if not target.exists() and not target.is_symlink():
            shutil.copy(source, target)
        if target != name:
            name.symlink_to(os.path.relpath(target, folder))
    elif kind == "dangling":
        name.symlink_to("gone.so")
    elif kind == "foreign":
        data = bytearray(source.read_bytes())
        if rng.random() < 0.5:
            data[18:20] = (22).to_bytes(2, "little")  # e_machine: s390x
        else:
            data[4] = 1  # EI_CLASS: 32 bit
        name.write_bytes(data)
    else:
        name.write_text("not a library at all\n" * 10)


def build_program(rng: random.Random, pool: Pool, folder: Path, folders: list[Path]) -> Path:
    """A program that opens the shim itself, or gets it through a framework library it needs."""

    def tagged() -> list[str]:
        tag = rng.choice(list(TAGS))
        chosen = rng.sample(folders, k=rng.randint(1, 2))
        paths = [f"$ORIGIN/../{f.name}" if rng.random() < 0.7 else str(f) for f in chosen]
        return [*TAGS[tag], f"-Wl,-rpath,{':'.join(paths)}"] if TAGS[tag] else []

    app = folder / "app" / "program"
    app.parent.mkdir()
    needs: list[str] = []
    if rng.random() < 0.5:
        framework = app.parent / "libframework.so"
        shim = pool.files["", "9.10.2", "none"]
        command = ["gcc", "-shared", "-o", framework, "-Wl,--no-as-needed", shim, *tagged()]
        subprocess.run([*command, "-Wl,-soname,libframework.so"], check=True)
        needs = ["-Wl,--no-as-needed", str(framework), "-Wl,--allow-shlib-undefined"]
        path = rng.choice([TAGS["rpath"], TAGS["runpath"]])
        extra = rng.choice(folders).name
        tags = [*path, f"-Wl,-rpath,$ORIGIN:$ORIGIN/../{extra}"]
    else:
        tags = tagged()
    command = ["gcc", "-x", "c", "-", "-o", str(app), "-x", "none", *needs, *tags]
    command += ["-ldl", f"-Wl,-rpath-link,{pool.files['', '9.10.2', 'none'].parent}"]
    subprocess.run(command, input=PROGRAM, text=True, check=True)
    return app


def environment(rng: random.Random, folders: list[Path]) -> dict[str, str]:
    entries = [str(f) for f in rng.sample(folders, k=rng.randint(0, 3))]
    entries = [e if rng.random() < 0.8 else f"$ORIGIN/../{Path(e).name}" for e in entries]
    cwd = str(rng.choice(folders))
    if entries and rng.random() < 0.25:
        entries.insert(rng.randint(0, len(entries)), "")
    environ = {"PATH": os.environ["PATH"], "PWD": cwd}
    if entries and any(entries):
        environ["LD_LIBRARY_PATH"] = rng.choice([":", ":", ";"]).join(entries)
    if rng.random() < 0.15:
        environ["LD_PRELOAD"] = str(rng.choice(folders) / "libcudnn_graph.so.9")
    return environ


def predict(pool: Pool, app: Path, environ: dict[str, str], folders: list[Path]) -> dict[str, str]:
    host = Host(environ=environ)
    loader = probe_loader(host)
    files = {lib.path: lib for lib in probe_libraries(host, (), (), (), loader)}
    for lib in read_program(host, str(app), loader):
        files.setdefault(lib.path, lib)
    framework = app.parent / "libframework.so"
    if framework.exists():
        for lib in read_program(host, str(framework), loader):
            files.setdefault(lib.path, lib)
    known = [with_release(pool, lib) for lib in files.values()]
    system = System(arch=platform.machine())
    machine = Machine(system=system, loader=loader, libraries=tuple(known), environ=environ)
    consumer = Consumer(name=str(app), scheme="program", major=9, binaries=(str(app),))
    plan = simulate(machine, consumer)
    assert plan.shim is not None
    result = {"shim": shown(plan.shim)}
    for load in plan.sublibraries:
        part = load.name.removeprefix("libcudnn_").removesuffix(".so.9")
        if part in PARTS:
            result[part] = shown(load)
    return result


def with_release(pool: Pool, library: Library) -> Library:
    """What asking the library itself would tell: the release that it was compiled as."""
    if not library.real or not os.path.isfile(library.real):
        return library
    digest = hashlib.sha256(Path(library.real).read_bytes()).hexdigest()
    return msgspec.structs.replace(library, version=pool.release.get(digest))


def shown(load: Load) -> str:
    if load.path is None or load.problem:
        return "-"
    return os.path.realpath(load.path)


def observe(app: Path, environ: dict[str, str]) -> dict[str, str] | None:
    """What the real loader did; None when the program could not even start."""
    done = subprocess.run(
        [app], env=environ, cwd=environ["PWD"], capture_output=True, text=True, check=False
    )
    if "error while loading shared libraries" in done.stderr:
        return None
    assert done.returncode == 0, done.stderr
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize("seed", range(6))
def test_simulation_is_what_the_real_loader_does(pool: Pool, tmp_path: Path, seed: int) -> None:
    for layout in range(8):
        rng = random.Random(f"{seed}-{layout}")
        base = tmp_path / str(layout)
        folders = [base / f"d{i}" for i in range(4)]
        for folder in folders:
            folder.mkdir(parents=True)
        for part in ("", "", "", *PARTS, *PARTS, "graph", "graph"):
            place(rng, pool, part, folders)
        app = build_program(rng, pool, base, folders)
        for _ in range(5):
            environ = environment(rng, folders)
            seen = observe(app, environ)
            predicted = predict(pool, app, environ, folders)
            if seen is None:
                assert predicted["shim"] == "-", (seed, layout, environ)
            else:
                assert predicted == seen, (seed, layout, environ)
