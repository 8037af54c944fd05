"""Lists the compiled extensions; everything else is in pyproject.toml."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

EXTENSIONS = {
    "fastplan._codec": "ext/_codec.pyx",
    "fastplan._codec_writer": "ext/_codec_writer.pyx",
    "fastplan.benchmarks._bare_loop": "ext/benchmarks/_bare_loop.pyx",
    "fastplan.columns._blocks": "ext/columns/_blocks.pyx",
    "fastplan.columns._ids": "ext/columns/_ids.pyx",
    "fastplan.fit._kernels": "ext/fit/_kernels.pyx",
    "fastplan.fit._nodes": "ext/fit/_nodes.pyx",
    "fastplan.fit._scan": "ext/fit/_scan.pyx",
    "fastplan.planner._overlay": "ext/planner/_overlay.pyx",
    "fastplan.planner._verify": "ext/planner/_verify.pyx",
    "fastplan.scheduler._ranking": "ext/scheduler/_ranking.pyx",
    "fastplan.scheduler._slots": "ext/scheduler/_slots.pyx",
    "fastplan.state._alloc_export": "ext/state/_alloc_export.pyx",
    "fastplan.state._alloc_view": "ext/state/_alloc_view.pyx",
    "fastplan.state._allocs": "ext/state/_allocs.pyx",
    "fastplan.state._plan_view": "ext/state/_plan_view.pyx",
}

# Developers may rebuild some of them: FASTPLAN_EXTENSIONS="fastplan.fit._kernels ..."
wanted = os.environ.get("FASTPLAN_EXTENSIONS", "").split() or list(EXTENSIONS)
headers = sorted(str(path) for path in Path("ext/include").glob("*.h")) + sorted(str(path) for path in Path("src").rglob("*.pxd"))

setup(
    ext_modules=cythonize(
        [
            Extension(
                name,
                [source],
                depends=[source, *headers],
                include_dirs=["ext/include"],
                extra_compile_args=["-O3", "-g0", "-fno-strict-aliasing", "-ffp-contract=off", "-Wno-sign-compare"],
            )
            for name, source in EXTENSIONS.items()
            if name in wanted
        ],
        include_path=["src"],
        build_dir="build/cython",
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "embedsignature": True,
            "embedsignature.format": "python",
        },
    ),
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
