# The MPI that the user means, as MPI::MPI_CXX, and the launcher that belongs to it.
#
#   MPI_CXX_COMPILER     if it is given: a path, or a name such as mpicxx.mpich
#   MPI_HOME             else its bin/mpicxx, from -DMPI_HOME or from the environment
#   PATH                 else the first mpicxx in it, as a module system would have it
#   MPIEXEC_EXECUTABLE   the launcher, if it is given; else the one beside that compiler
#   TUTTI_MPIS           the mpicxx of other MPIs that the shared library shall serve as well
#   TUTTI_TEST_MPIS      the mpicxx of other MPIs that a part of the tests shall run with as well
#
# The compiler, the header, the library and the launcher are asked who they are. CMake prints it and
# stops where they disagree. Sets TUTTI_MPI_FAMILY (openmpi or mpich: what launchers and libraries
# of Intel, Cray and MVAPICH speak, too), TUTTI_MPI_VERSION and TUTTI_MPI_LAUNCHER_VERSION; for
# plug-ins TUTTI_MPI_ABIS (a family, or "standard": the ABI of MPI 5), the first of them this one,
# TUTTI_MPI_INCLUDES_${abi} and TUTTI_MPI_DEFINITIONS_${abi}, TUTTI_MPI_FOLDERS, those of libraries
# outside of the system's, and TUTTI_PLUGINS, the targets.
set(TUTTI_MPIS "" CACHE STRING "mpicxx of other MPIs that the shared library shall serve as well")
set(TUTTI_TEST_MPIS "" CACHE STRING "mpicxx of other MPIs that a part of the tests runs with")

# Who speaks in the text: sets `family`, `name` and `version`, empty where the text is nobody's.
function(tutti_mpi_identify text)
  set(number "([0-9]+(\\.[0-9]+)*)")
  set(found "")
  foreach(row "openmpi|Open MPI|Open MPI[)]? v?${number}"
              "mpich|Intel MPI|Intel[(]R[)] MPI Library[^0-9]*${number}"
              "mpich|MVAPICH|MVAPICH2?[ a-z]*[Vv]ersion[^0-9]*${number}"
              "mpich|Cray MPICH|CRAY MPICH[^0-9]*${number}"
              "mpich|MPICH|(HYDRA build details|MPICH)[^0-9]*${number}")
    string(REGEX MATCH "^([^|]*)[|]([^|]*)[|](.*)$" row "${row}")
    set(family ${CMAKE_MATCH_1})
    set(name ${CMAKE_MATCH_2})
    string(REGEX MATCH "${CMAKE_MATCH_3}" found "${text}")
    if(found)
      break()
    endif()
  endforeach()
  if(NOT found)
    set(family "")
    set(name "")
  endif()
  string(REGEX MATCH "[0-9]+(\\.[0-9]+)*$" version "${found}")
  foreach(variable family name version)
    set(${variable} "${${variable}}" PARENT_SCOPE)
  endforeach()
endfunction()

# What a command says of itself with this option, on both streams.
function(tutti_mpi_ask variable command option)
  execute_process(COMMAND ${command} ${option} OUTPUT_VARIABLE text ERROR_VARIABLE text TIMEOUT 20)
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

# Sets the variable to the compiler that is meant, or to nothing where no MPI is in the PATH.
function(tutti_mpi_compiler variable)
  set(home "${MPI_HOME}")
  if(NOT home)
    set(home "$ENV{MPI_HOME}")
  endif()
  unset(beside)  # find_program looks only where the variable is not set
  if(home)
    find_program(beside NAMES mpicxx mpic++ PATHS ${home}/bin NO_DEFAULT_PATH NO_CACHE)
    if(NOT beside)
      message(FATAL_ERROR "MPI_HOME=${home}, but there is no ${home}/bin/mpicxx. Name the folder "
                          "that MPI is installed in, or unset MPI_HOME.")
    endif()
  endif()
  if(MPI_CXX_COMPILER)
    unset(given)
    find_program(given NAMES ${MPI_CXX_COMPILER} NO_CACHE)
    if(NOT given)
      message(FATAL_ERROR "MPI_CXX_COMPILER=${MPI_CXX_COMPILER}: no such program.")
    endif()
    if(beside)
      get_filename_component(real_given ${given} REALPATH)
      get_filename_component(real_beside ${beside} REALPATH)
      if(NOT real_given STREQUAL real_beside)
        message(FATAL_ERROR "two MPIs are asked for: MPI_CXX_COMPILER=${given}, and "
                            "MPI_HOME=${home} has ${beside}. Unset one of the two.")
      endif()
    endif()
    set(${variable} ${given} PARENT_SCOPE)
    return()
  endif()
  if(NOT beside)
    find_program(beside NAMES mpicxx mpicxx.openmpi mpicxx.mpich NO_CACHE
                 NO_CMAKE_PATH NO_CMAKE_ENVIRONMENT_PATH)
  endif()
  if(NOT beside)
    set(beside "")
  endif()
  set(${variable} "${beside}" PARENT_SCOPE)
endfunction()

# A build folder remembers an MPI's headers and libraries: they may not be mixed with another's.
function(tutti_mpi_require_one_per_folder compiler)
  if(TUTTI_MPI_COMPILER AND NOT TUTTI_MPI_COMPILER STREQUAL compiler)
    message(FATAL_ERROR "this build folder is configured for the MPI of ${TUTTI_MPI_COMPILER}, and "
                        "now that of ${compiler} is meant. Use another build folder or remove this "
                        "one; or put the former first in the PATH again, or into MPI_HOME.")
  endif()
  set(TUTTI_MPI_COMPILER "${compiler}" CACHE INTERNAL "mpicxx of this build folder")
endfunction()

# Sets `header` and `library` to what these two say of themselves, in a program that is run. A
# header of the standard ABI is of no MPI: it sets `standard_abi`.
function(tutti_mpi_ask_library)
  set(source ${PROJECT_BINARY_DIR}/CMakeFiles/tutti_mpi_identity.cpp)
  file(WRITE ${source} [=[
#include <cstdio>
#include <mpi.h>
#define TEXT_OF(value) #value
#define TEXT(value) TEXT_OF(value)
int main() {
#if defined(MPI_ABI_VERSION) && MPI_ABI_VERSION > 0
  std::puts("standard ABI " TEXT(MPI_ABI_VERSION) "." TEXT(MPI_ABI_SUBVERSION) ";");
#elif defined(OMPI_MAJOR_VERSION)
  std::puts("header: Open MPI " TEXT(OMPI_MAJOR_VERSION) "." TEXT(OMPI_MINOR_VERSION) "."
            TEXT(OMPI_RELEASE_VERSION) ";");
#elif defined(I_MPI_VERSION)
  std::puts("header: Intel(R) MPI Library " I_MPI_VERSION ";");
#elif defined(MVAPICH2_VERSION)
  std::puts("header: MVAPICH version " MVAPICH2_VERSION ";");
#elif defined(MVAPICH_VERSION)
  std::puts("header: MVAPICH version " MVAPICH_VERSION ";");
#elif defined(MPICH_VERSION)
  std::puts("header: MPICH " MPICH_VERSION ";");
#endif
  std::fflush(stdout);
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::printf("library: %s\n", text);
}
]=])
  if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
    return()
  endif()
  try_run(status compiled ${PROJECT_BINARY_DIR}/CMakeFiles/tutti_mpi_identity ${source}
          LINK_LIBRARIES MPI::MPI_CXX COMPILE_OUTPUT_VARIABLE output RUN_OUTPUT_VARIABLE text)
  if(NOT compiled)
    message(FATAL_ERROR "a program with MPI_Get_library_version does not build with "
                        "${TUTTI_MPI_COMPILER}:\n${output}")
  endif()
  string(REGEX MATCH "standard ABI [^;]*" standard_abi "${text}")
  string(REGEX MATCH "header: [^;]*" header "${text}")
  string(REGEX MATCH "library: .*" library "${text}")
  set(standard_abi "${standard_abi}" PARENT_SCOPE)
  set(header "${header}" PARENT_SCOPE)
  set(library "${library}" PARENT_SCOPE)
endfunction()

# Stops unless both are of one family and, for Open MPI, of one major version.
function(tutti_mpi_require_alike what family_a version_a other family_b version_b remedy)
  string(REGEX MATCH "^[0-9]+" major_a "${version_a}")
  string(REGEX MATCH "^[0-9]+" major_b "${version_b}")
  if(family_a STREQUAL family_b AND (major_a STREQUAL major_b OR NOT family_a STREQUAL openmpi))
    return()
  endif()
  message(FATAL_ERROR "two MPIs disagree: ${what}, but ${other}. ${remedy}")
endfunction()

# Sets the variable to the launcher of this family and, of Open MPI, of this major version: beside
# the compiler, else in the PATH; or to nothing. Sets `others` to those that were found instead.
function(tutti_mpi_launcher variable compiler wanted wanted_version)
  get_filename_component(folder ${compiler} DIRECTORY)
  get_filename_component(real ${compiler} REALPATH)
  get_filename_component(real_folder ${real} DIRECTORY)
  if(wanted STREQUAL openmpi)
    set(names mpirun mpirun.openmpi mpiexec.openmpi)
  else()
    set(names mpirun mpiexec mpiexec.hydra mpirun.mpich mpiexec.mpich)
  endif()
  string(REGEX MATCH "^[0-9]+" wanted_major "${wanted_version}")
  set(others "")
  set(${variable} "" PARENT_SCOPE)
  foreach(place "PATHS;${folder};${real_folder};NO_DEFAULT_PATH" "")
    foreach(name_of_launcher IN LISTS names)
      unset(candidate)
      find_program(candidate NAMES ${name_of_launcher} ${place} NO_CACHE)
      if(NOT candidate)
        continue()
      endif()
      tutti_mpi_ask(text ${candidate} --version)
      tutti_mpi_identify("${text}")
      string(REGEX MATCH "^[0-9]+" major "${version}")
      if(family STREQUAL wanted AND (major STREQUAL wanted_major OR wanted STREQUAL mpich))
        set(${variable} ${candidate} PARENT_SCOPE)
        return()
      endif()
      list(APPEND others "${candidate} is ${name} ${version}")
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES others)
  list(JOIN others ", " others)
  set(others "${others}" PARENT_SCOPE)
endfunction()

tutti_mpi_compiler(compiler)
if(compiler)
  tutti_mpi_require_one_per_folder(${compiler})
  set(MPI_CXX_COMPILER ${compiler})
endif()
# The C interface alone. With the standard ABI there is no other, and FindMPI would forget its
# -DMPI_ABI.
set(MPI_CXX_SKIP_MPICXX ON)
if(compiler)
  tutti_mpi_ask(text ${compiler} -show)
  if(text MATCHES " -lmpi_abi")
    set(MPI_CXX_SKIP_MPICXX OFF)
  endif()
endif()
if(NOT MPIEXEC_EXECUTABLE)
  set(TUTTI_MPI_LOOKS_FOR_LAUNCHER ON)
  set(MPIEXEC_EXECUTABLE ${compiler})  # found below: FindMPI would take the first of any MPI
endif()
find_package(MPI 3.1 REQUIRED COMPONENTS CXX)

set(header "")
set(library "")
set(standard_abi "")
tutti_mpi_ask_library()
tutti_mpi_identify("${header}")
set(header_family "${family}")
set(header_version "${version}")
set(header_text "the header mpi.h (in ${MPI_CXX_INCLUDE_DIRS}) is ${name} ${version}'s")
tutti_mpi_identify("${library}")
set(TUTTI_MPI_FAMILY "${family}")
set(TUTTI_MPI_VERSION "${version}")
set(TUTTI_MPI_NAME "${name}")
set(remedy "Remove the build folder, look at CPATH, LIBRARY_PATH, LD_LIBRARY_PATH and the loaded \
modules, and name one MPI: -DMPI_HOME=FOLDER or -DMPI_CXX_COMPILER=FOLDER/bin/mpicxx")
if(library AND header_family AND family)
  tutti_mpi_require_alike("${header_text}" "${header_family}" "${header_version}"
    "the library that programs load is ${name} ${version}" "${family}" "${version}" "${remedy}")
endif()
if(compiler AND TUTTI_MPI_FAMILY)
  tutti_mpi_ask(text ${compiler} --showme:version)
  if(NOT text MATCHES "Open MPI")
    tutti_mpi_ask(text ${compiler} -v)
  endif()
  tutti_mpi_identify("${text}")
  if(family)
    tutti_mpi_require_alike("${compiler} is ${name} ${version}'s" "${family}" "${version}"
      "the library that it led to is ${TUTTI_MPI_NAME} ${TUTTI_MPI_VERSION}" "${TUTTI_MPI_FAMILY}"
      "${TUTTI_MPI_VERSION}" "${remedy}")
  endif()
endif()

if(TUTTI_MPI_LOOKS_FOR_LAUNCHER)
  tutti_mpi_launcher(MPIEXEC_EXECUTABLE ${compiler} "${TUTTI_MPI_FAMILY}" "${TUTTI_MPI_VERSION}")
  if(NOT MPIEXEC_EXECUTABLE AND TUTTI_BUILD_TESTS AND TUTTI_MPI_FAMILY)
    message(FATAL_ERROR "no launcher of ${TUTTI_MPI_NAME} ${TUTTI_MPI_VERSION}, the MPI of "
                        "${compiler}, is beside it or in the PATH (${others}). Install it, or name "
                        "it: -DMPIEXEC_EXECUTABLE=FOLDER/bin/mpirun; -DTUTTI_BUILD_TESTS=OFF "
                        "builds without one.")
  endif()
endif()
set(launcher_text "none found")
if(MPIEXEC_EXECUTABLE)
  tutti_mpi_ask(text ${MPIEXEC_EXECUTABLE} --version)
  tutti_mpi_identify("${text}")
  set(TUTTI_MPI_LAUNCHER_VERSION "${version}")
  set(launcher_text "${MPIEXEC_EXECUTABLE}")
  if(family AND TUTTI_MPI_FAMILY)  # nothing is known of srun and the like
    tutti_mpi_require_alike("MPIEXEC_EXECUTABLE=${MPIEXEC_EXECUTABLE} is ${name} ${version}'s"
      "${family}" "${version}"
      "the library is ${TUTTI_MPI_NAME} ${TUTTI_MPI_VERSION}, of ${compiler}"
      "${TUTTI_MPI_FAMILY}" "${TUTTI_MPI_VERSION}"
      "Name the launcher of that MPI, or the mpicxx of this one: -DMPI_CXX_COMPILER")
  endif()
endif()
if(NOT TUTTI_MPI_FAMILY)
  set(TUTTI_MPI_NAME "of ${header_text}, whose library could not be asked")
endif()
set(abi_text "")
if(standard_abi)
  set(abi_text ", ${standard_abi}")
endif()
message(STATUS "MPI: ${TUTTI_MPI_NAME} ${TUTTI_MPI_VERSION} of ${compiler}${abi_text}, launcher: "
               "${launcher_text}")

# --- the MPIs that the shared library has plug-ins for -------------------------------------------

# Sets `family`, `name` and `version` to what the compiler is of; `includes`, `folders` and
# `library`, a name, to what it says that it would use; and `is_standard` if that is the standard
# ABI (mpicxx_abi of MPICH), which the headers of MPIs have under MPI_ABI. Stops where it is no
# MPI's.
function(tutti_mpi_flags option compiler)
  tutti_mpi_ask(text ${compiler} --showme:version)
  if(NOT text MATCHES "Open MPI")
    tutti_mpi_ask(text ${compiler} -v)
  endif()
  tutti_mpi_identify("${text}")
  if(NOT family)
    message(FATAL_ERROR "${option}=${${option}}: ${compiler} does not say which MPI it is of. It "
                        "must be the mpicxx of Open MPI, MPICH or Intel MPI.")
  endif()
  foreach(variable family name version)
    set(${variable} "${${variable}}" PARENT_SCOPE)
  endforeach()
  tutti_mpi_ask(text ${compiler} -show)
  set(is_standard OFF PARENT_SCOPE)
  if(text MATCHES " -lmpi_abi")
    set(is_standard ON PARENT_SCOPE)
  endif()
  string(REGEX MATCH " -l(mpi|mpich|mpi_abi)( |\n|$)" found "${text}")
  set(library "${CMAKE_MATCH_1}" PARENT_SCOPE)
  foreach(kind I L)
    string(REGEX MATCHALL "(^| )-${kind} *[^ \n]+" flags "${text}")
    set(found "")
    foreach(flag IN LISTS flags)
      string(REGEX REPLACE "^ ?-${kind} *" "" folder "${flag}")
      list(APPEND found ${folder})
    endforeach()
    set(found_${kind} "${found}")
  endforeach()
  set(includes "${found_I}" PARENT_SCOPE)
  set(folders "${found_L}" PARENT_SCOPE)
endfunction()

set(TUTTI_MPI_ABIS "${TUTTI_MPI_FAMILY}")
if(standard_abi)
  set(TUTTI_MPI_ABIS standard)
elseif(NOT TUTTI_MPI_ABIS)
  set(TUTTI_MPI_ABIS openmpi)  # cross-compiled: the header has been asked, see above
  if(header_family)
    set(TUTTI_MPI_ABIS ${header_family})
  endif()
endif()
set(TUTTI_MPI_INCLUDES_${TUTTI_MPI_ABIS} ${MPI_CXX_INCLUDE_DIRS})
set(TUTTI_MPI_FOLDERS "")
foreach(file IN LISTS MPI_CXX_LIBRARIES)
  get_filename_component(folder ${file} DIRECTORY)
  list(APPEND TUTTI_MPI_FOLDERS ${folder})
endforeach()
foreach(given IN LISTS TUTTI_MPIS)
  unset(other)
  find_program(other NAMES ${given} NO_CACHE)
  if(NOT other)
    message(FATAL_ERROR "TUTTI_MPIS=${TUTTI_MPIS}: ${given} is no program. Name the mpicxx of an "
                        "MPI, such as mpicxx.mpich or /opt/mpich/bin/mpicxx.")
  endif()
  tutti_mpi_flags(TUTTI_MPIS ${other})
  if(is_standard)
    set(family standard)
    set(name "the standard ABI, by ${name}")
  endif()
  if(family IN_LIST TUTTI_MPI_ABIS)
    continue()  # one plug-in serves a family: Open MPI 4 and 5, MPICH and Intel MPI
  endif()
  find_path(header_folder mpi.h PATHS ${includes} NO_DEFAULT_PATH NO_CACHE)
  if(NOT header_folder)
    message(FATAL_ERROR "TUTTI_MPIS=${TUTTI_MPIS}: ${other} -show names no folder with mpi.h. "
                        "Install the headers of that MPI.")
  endif()
  unset(header_folder)
  list(APPEND TUTTI_MPI_ABIS ${family})
  set(TUTTI_MPI_INCLUDES_${family} ${includes})
  list(APPEND TUTTI_MPI_FOLDERS ${folders})
  message(STATUS "MPI: also ${name} ${version} of ${other}, as a plug-in")
endforeach()
set(TUTTI_MPI_DEFINITIONS_standard MPI_ABI)
list(FILTER TUTTI_MPI_FOLDERS EXCLUDE REGEX "^/usr/lib")
list(REMOVE_DUPLICATES TUTTI_MPI_FOLDERS)

# Plug-ins are files in a folder beside the shared library, which has the version in its name.
set(TUTTI_PLUGIN_FOLDER tutti-${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
list(TRANSFORM TUTTI_MPI_ABIS PREPEND tutti_mpi_ OUTPUT_VARIABLE TUTTI_PLUGINS)
