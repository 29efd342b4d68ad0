"""Builds the operators' shared library; everything else is in pyproject.toml.

The library is optional: where it cannot be built the install still succeeds, and the runtime uses the portable
lowering.
"""

from pathlib import Path

from setuptools import Extension, setup

PLUGINS = Path("plugins/foredraft_plugins")

setup(
    ext_modules=[
        Extension(
            "foredraft_plugins._native",  # found by path (foredraft_plugins.library), never imported
            sources=sorted(path.as_posix() for path in PLUGINS.rglob("*.cc")),
            depends=sorted(path.as_posix() for pattern in ("*.h", "*.inc") for path in PLUGINS.rglob(pattern)),
            include_dirs=[PLUGINS.as_posix()],
            # No fused or reordered float arithmetic but what the code says: all instruction sets give the same bits.
            extra_compile_args=[
                "-std=c++17",
                "-O3",
                "-ffp-contract=off",
                "-fno-math-errno",
                "-fvisibility=hidden",
                "-g0",
                "-Wno-uninitialized",  # false alarms in GCC's own AVX-512 headers
                "-Wno-maybe-uninitialized",
            ],
            extra_link_args=["-pthread"],
            language="c++",
            optional=True,
        )
    ]
)
