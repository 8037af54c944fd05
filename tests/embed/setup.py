"""Builds a package that cimports fastplan: all it needs is where fastplan is installed."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup  # type: ignore[import-untyped]

import fastplan

headers = str(Path(fastplan.__file__).resolve().parent.parent)

setup(
    name="fleetcount",
    packages=["fleetcount"],
    ext_modules=cythonize([Extension("fleetcount._count", ["fleetcount/_count.pyx"])], include_path=[headers], compiler_directives={"language_level": 3}),
)
