"""What the house tests know of the tree: its files, its modules and who imports whom, read from the sources without importing them."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from tests.shared_data import PROJECT

SRC = PROJECT / "src"
EXT = PROJECT / "ext"


@functools.cache
def project_files() -> list[Path]:
    """Return the files of the project: those that git tracks, else (in an unpacked sdist) those that lie there."""
    if (PROJECT / ".git").exists():
        listing = subprocess.run(["git", "ls-files", "-z", "--cached"], cwd=PROJECT, capture_output=True, check=True, text=True).stdout
        return sorted(path for name in listing.split("\0") if name and (path := PROJECT / name).is_file())
    left_out = {"build", "dist", ".venv", "__pycache__"}
    return sorted(
        path
        for path in PROJECT.rglob("*")
        if path.is_file() and not left_out & set(path.relative_to(PROJECT).parts[:-1]) and path.suffix not in (".so", ".pyc")
    )


def lines_that_match(pattern: re.Pattern[str], *suffixes: str) -> Iterator[str]:
    """Yield `file:line: text` for each line of the project's text files (of these suffixes, else all) in which *pattern* is found."""
    for path in project_files():
        if suffixes and path.suffix not in suffixes:
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.search(line):
                yield f"{path.relative_to(PROJECT)}:{number}: {line.strip()[:120]}"


def extensions() -> dict[str, str]:
    """Return the table EXTENSIONS of setup.py: module name → source."""
    for statement in ast.parse((PROJECT / "setup.py").read_text()).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name) and statement.targets[0].id == "EXTENSIONS":
            table: dict[str, str] = ast.literal_eval(statement.value)
            return table
    raise AssertionError("setup.py has no table EXTENSIONS")


@functools.cache
def modules() -> dict[str, tuple[Path, ...]]:
    """Return each module of the package and the sources that say what it imports: name → files."""
    found: dict[str, tuple[Path, ...]] = {module_name(path, SRC): (path,) for path in sorted(SRC.rglob("*.py"))}
    for name, source in extensions().items():
        header = SRC / (name.replace(".", "/") + ".pxd")
        found[name] = (PROJECT / source, *([header] if header.exists() else []))
    return found


def module_name(path: Path, root: Path) -> str:
    """Return the dotted name of the module whose source is *path* below *root*."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def imports(name: str) -> frozenset[str]:
    """Return the modules of ours that the module *name* imports, also for types only, inside functions, or by their name as text."""
    found: set[str] = set()
    for path in modules()[name]:
        found |= _cython_imports(path) if path.suffix in (".pyx", ".pxd") else _python_imports(path)
    return frozenset(module for module in map(_nearest_module, found) if module and module != name)


def _python_imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.split(":")[0] in modules():
            found.add(node.value.split(":")[0])
    return found


def _cython_imports(path: Path) -> set[str]:
    found = set()
    text = re.sub(r"\\\n|\([^()]*\)", lambda part: part.group().replace("\n", " "), path.read_text())
    for line in text.splitlines():
        if match := re.match(r"\s*from\s+(\S+)\s+c?import\s+(.*)", line):
            names = re.findall(r"\w+", re.sub(r"\bas\s+\w+|#.*", "", match[2]))
            found |= {f"{match[1]}.{name}" for name in names}
        elif match := re.match(r"\s*c?import\s+(\S+)", line):
            found.add(match[1])
    return found


def _nearest_module(name: str) -> str | None:
    """Return the module that `import name` reaches: *name* itself, or what holds it; None for modules that are not ours."""
    while name:
        if name in modules():
            return name
        name = name.rpartition(".")[0]
    return None


def part_of(name: str) -> str:
    """Return the part of the architecture that a module belongs to: `fastplan.fit._scan` → `fit`, `fastplan._codec_writer` → `codec`, `fastplan` → ``""``."""
    return name.split(".")[1].removeprefix("_").partition("_")[0] if "." in name else ""


def public_modules() -> list[str]:
    """Return the names of the package, and of each public module and package right below it."""
    return [name for name in sorted(modules()) if name == "fastplan" or (name.count(".") == 1 and "._" not in name)]


def public_names(module: ModuleType) -> list[str]:
    """Return the names that *module* exports: `__all__`, else the classes and functions that it defines."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [name for name, value in vars(module).items() if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__]
