# SPDX-License-Identifier: Apache-2.0
from spack.package import *


class Tutti(CMakePackage):
    """A replicated key-value store and collectives for jobs that mpirun starts.

    Built from a folder of sources, since there is no archive of them to fetch:
        spack repo add scripts/packages/spack
        spack dev-build tutti@0.1.0
    """

    license("Apache-2.0")
    version("0.1.0")

    variant("apps", default=True, description="Programs: training, benchmarks, tutti-doctor")
    variant("cuda", default=False, description="Values on NVIDIA's GPUs, with NCCL between them")
    variant("tests", default=False, description="Build the tests, for ctest in the build folder")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("mpi@3:")
    depends_on("xxhash", type="build")
    depends_on("nlohmann-json", type="build")
    depends_on("boost+program_options", when="+apps")
    depends_on("eigen", type="build", when="+apps")
    depends_on("zlib-api", when="+apps")
    depends_on("doctest", type="build", when="+tests")
    depends_on("python@3.10:", type="build", when="+tests")
    depends_on("cuda@12:", when="+cuda")
    depends_on("nccl", when="+cuda")
    conflicts("%gcc@:10", msg="C++20 needs g++ 11 or later")

    def cmake_args(self):
        return [
            self.define("MPI_CXX_COMPILER", self.spec["mpi"].mpicxx),
            self.define_from_variant("TUTTI_BUILD_APPS", "apps"),
            self.define_from_variant("TUTTI_BUILD_TESTS", "tests"),
            self.define_from_variant("TUTTI_CUDA", "cuda"),
        ]
