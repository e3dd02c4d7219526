# MPI::MPI_CXX and the launcher that belongs to it.
#
# Where several MPI libraries are installed, Debian gives each wrapper a suffix; Open MPI's is taken
# unless MPI_CXX_COMPILER says otherwise.
if(NOT MPI_CXX_COMPILER)
  find_program(TUTTI_MPICXX NAMES mpicxx.openmpi mpicxx)
  if(TUTTI_MPICXX)
    set(MPI_CXX_COMPILER ${TUTTI_MPICXX})
  endif()
endif()
if(NOT MPIEXEC_EXECUTABLE)
  find_program(TUTTI_MPIRUN NAMES mpirun.openmpi mpirun)
  if(TUTTI_MPIRUN)
    set(MPIEXEC_EXECUTABLE ${TUTTI_MPIRUN})
  endif()
endif()
set(MPI_CXX_SKIP_MPICXX ON)  # the C interface alone
find_package(MPI 3.1 REQUIRED COMPONENTS CXX)

