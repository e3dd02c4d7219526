# MPI::MPI_CXX and the launcher that belongs to it.
#
# The PATH decides, as a module system would have it. Where several MPI libraries are installed,
# Debian gives the plain names to one of them and each a suffix: if the plain one is another MPI,
# Open MPI's is taken. MPI_CXX_COMPILER and MPIEXEC_EXECUTABLE override both.
if(NOT MPI_CXX_COMPILER)
  find_program(TUTTI_MPICXX NAMES mpicxx mpicxx.openmpi)
  if(TUTTI_MPICXX)
    execute_process(COMMAND ${TUTTI_MPICXX} --showme:version
                    OUTPUT_VARIABLE mpicxx_version ERROR_VARIABLE mpicxx_version)
    find_program(TUTTI_MPICXX_OPENMPI NAMES mpicxx.openmpi)
    if(TUTTI_MPICXX_OPENMPI AND NOT mpicxx_version MATCHES "Open MPI")
      set(TUTTI_MPICXX ${TUTTI_MPICXX_OPENMPI})
    endif()
    set(MPI_CXX_COMPILER ${TUTTI_MPICXX})
  endif()
endif()
if(NOT MPIEXEC_EXECUTABLE)
  find_program(TUTTI_MPIRUN NAMES mpirun mpirun.openmpi)
  if(TUTTI_MPIRUN)
    execute_process(COMMAND ${TUTTI_MPIRUN} --version OUTPUT_VARIABLE mpirun_version ERROR_QUIET)
    find_program(TUTTI_MPIRUN_OPENMPI NAMES mpirun.openmpi)
    if(TUTTI_MPIRUN_OPENMPI AND NOT mpirun_version MATCHES "Open MPI")
      set(TUTTI_MPIRUN ${TUTTI_MPIRUN_OPENMPI})
    endif()
    set(MPIEXEC_EXECUTABLE ${TUTTI_MPIRUN})
  endif()
endif()
set(MPI_CXX_SKIP_MPICXX ON)  # the C interface alone
find_package(MPI 3.1 REQUIRED COMPONENTS CXX)

