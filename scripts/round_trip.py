"""From source archive to wheel to an empty environment, as a stranger would install fastplan.

1. build the sdist into `dist/`;
2. unpack it elsewhere and build the wheel from that alone, into `dist/`;
3. install the wheel with nothing but its locked runtime dependencies, and try it;
4. with `--tests`: add the locked test dependencies, and run the tests of the archive against the installed wheel.

`--every-python` does steps 2 and 3 for each CPython found on PATH and under pyenv, from 3.11 on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
DIST = PROJECT / "dist"
OLDEST, NEWEST = (3, 11), (3, 14)

# Imports every module of the installed package; only one that says which extra package it needs may be left out.
SMOKE_TEST = """
import importlib, pkgutil, sys, fastplan
assert "site-packages" in fastplan.__file__, fastplan.__file__
names = [module.name for module in pkgutil.walk_packages(fastplan.__path__, "fastplan.") if not module.name.endswith("__main__")]
for name in names:
    try:
        importlib.import_module(name)
    except ImportError as problem:
        if "needs the package" not in str(problem):
            raise
        print(f"left out: {problem}")
print(f"imported {len(names)} modules under Python {sys.version.split()[0]}")
"""


def say(text: str) -> None:
    print(f"round trip: {text}", flush=True)


def run(command: Sequence[str | Path], cwd: Path) -> None:
    """Run *command* without what the caller's environment says about Python paths; stop at the first failure."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "FASTPLAN_EXTENSIONS")}
    environment["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    # The tests of the archive find shared data where those of the project do.
    environment.setdefault("FASTPLAN_SHARED", str(PROJECT.parent / "shared"))
    subprocess.run([str(part) for part in command], cwd=cwd, env=environment, check=True)


def create_environment(python: str, folder: Path, lock: str) -> Path:
    """Create a virtual environment holding what `requirements/{lock}.txt` pins; return its interpreter."""
    run([python, "-m", "venv", folder], cwd=folder.parent)
    interpreter = folder / "bin" / "python"
    install_lock(interpreter, lock)
    return interpreter


def install_lock(interpreter: Path, lock: str) -> None:
    requirements = PROJECT / "requirements" / f"{lock}.txt"
    run([interpreter, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", requirements], cwd=PROJECT)


def build_sdist(folder: Path) -> Path:
    """Build the sdist into `dist/` and return the folder it unpacks to."""
    shutil.rmtree(DIST, ignore_errors=True)
    run([sys.executable, "-m", "build", "--quiet", "--sdist", "--no-isolation", "--outdir", DIST, PROJECT], cwd=PROJECT)
    (archive,) = DIST.glob("*.tar.gz")
    run(["tar", "-xzf", archive], cwd=folder)
    say(f"{archive.name}: {archive.stat().st_size // 1024} KiB")
    return folder / archive.name.removesuffix(".tar.gz")


def build_wheel(python: str, source: Path, folder: Path) -> Path:
    """Build a wheel from a fresh copy of *source* with *python* and return where it lies in `dist/`."""
    builder = create_environment(python, folder / "builder", "build")
    clean_source = folder / "source"
    shutil.copytree(source, clean_source)
    run([builder, "-m", "build", "--quiet", "--wheel", "--no-isolation", "--outdir", folder / "wheel", clean_source], cwd=folder)
    (wheel,) = (folder / "wheel").glob("*.whl")
    shutil.copy(wheel, DIST)
    say(f"{wheel.name}: {wheel.stat().st_size // 1024} KiB")
    return DIST / wheel.name


def install_wheel(python: str, wheel: Path, folder: Path) -> Path:
    """Install *wheel* with its locked dependencies into an empty environment, try it, and return the interpreter."""
    interpreter = create_environment(python, folder / "empty", "runtime")
    run([interpreter, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel], cwd=folder)
    run([interpreter, "-m", "pip", "check"], cwd=folder)
    run([interpreter, "-W", "error", "-c", SMOKE_TEST], cwd=folder)
    run([interpreter.parent / "fastplan", "--version"], cwd=folder)
    return interpreter


def found_pythons() -> list[str]:
    """Return one interpreter for each supported CPython version on PATH or under pyenv, oldest first."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    pythons = []
    for minor in range(OLDEST[1], NEWEST[1] + 1):
        name = f"python3.{minor}"
        candidates = [shutil.which(name), *sorted(map(str, pyenv.glob(f"3.{minor}.*/bin/{name}")))]
        pythons += [candidate for candidate in candidates if candidate and _is_version(candidate, minor)][:1]
    return pythons


def _is_version(python: str, minor: int) -> bool:
    """Tell whether *python* runs, is CPython 3.*minor*, and can build extensions (a pyenv shim may stand for nothing)."""
    question = (
        "import ensurepip, os, sys, sysconfig; assert sys.implementation.name == 'cpython'; "
        f"assert sys.version_info[:2] == (3, {minor}); assert os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h'))"
    )
    return subprocess.run([python, "-c", question], capture_output=True, check=False).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", action="store_true", help="run the tests of the archive against the installed wheel")
    parser.add_argument("--every-python", action="store_true", help="build and try a wheel with each CPython found")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="fastplan-") as temporary:
        folder = Path(temporary)
        source = build_sdist(folder)
        for python in found_pythons() if options.every_python else [sys.executable]:
            say(f"with {python}")
            place = folder / f"python{len(list(folder.iterdir()))}"
            place.mkdir()
            interpreter = install_wheel(python, build_wheel(python, source, place), place)
            if options.tests:
                install_lock(interpreter, "test")
                run([interpreter, "-m", "pytest"], cwd=source)
    say("passed")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as problem:
        sys.exit(f"round trip: failed: {' '.join(problem.cmd)}")
