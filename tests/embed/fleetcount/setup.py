"""Builds the embedder's module against the installed fastplan; its headers are found where the package lies."""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    name="fleetcount",
    version="1.0",
    ext_modules=cythonize([Extension("fleetcount", ["fleetcount.pyx"])], language_level=3),
)
