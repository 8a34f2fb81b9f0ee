"""Builds a module that cimports kstore's declarations: python setup.py build_ext --inplace."""

from Cython.Build import cythonize
from setuptools import Extension, setup

import kstore

include = kstore.get_include()

setup(
    name="stranger",
    ext_modules=cythonize(
        [Extension("stranger", ["stranger.pyx"], include_dirs=[include])],
        include_path=[include],
        language_level=3,
    ),
)
