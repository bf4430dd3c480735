"""A recipe of Spack, to stand as `py-pypmix-hpc/package.py` in a repository of packages."""

from spack.package import *


class PyPypmixHpc(PythonPackage):
    """Pythonic PMIx: process management for HPC jobs, over any libpmix or none."""

    homepage = "https://pypmix.example/docs/"
    pypi = "pypmix-hpc/pypmix_hpc-2026.11.0.tar.gz"

    license("BSD-3-Clause")

    # [PLACEHOLDER: the sum of the sdist that a maintainer has uploaded]
    version("2026.11.0", sha256="0" * 64)

    variant("native", default=True, description="Build the native engine, which loads a libpmix at run time")
    variant("pmix", default=False, when="+native", description="Have Spack bring a libpmix for it")

    depends_on("c", type="build", when="+native")
    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-anyio@4.10:", type=("build", "run"))
    depends_on("py-cffi@1.17:", type=("build", "run"))
    depends_on("pmix@4.2:", type="run", when="+pmix")

    import_modules = ["pypmix", "pypmix.aio", "pypmix.host", "pypmix.cli"]

    def setup_build_environment(self, env):
        env.set("PYPMIX_BUILD_NATIVE", "1" if self.spec.satisfies("+native") else "0")

    def setup_run_environment(self, env):
        if self.spec.satisfies("+pmix"):
            env.set("PYPMIX_LIBPMIX", join_path(self.spec["pmix"].prefix.lib, "libpmix.so.2"))
