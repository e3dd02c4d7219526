# A part of the tests under mpirun once more, with each MPI of TUTTI_TEST_MPIS, and the programs of
# tests/preload/.
#
# Objects that have not seen <mpi.h> are the same for all MPIs: nearly all of the library, and of
# the tests. So they are linked as this build has compiled them. Per MPI only the library's part
# that speaks to it, the main function and the few tests that call MPI are compiled: seconds, not
# minutes.

# tutti_test_mpi(mpicxx): entries such as store_test_mpich4_np2, and a target of the programs.
function(tutti_test_mpi given)
  unset(compiler)
  find_program(compiler NAMES ${given} NO_CACHE)
  if(NOT compiler)
    message(FATAL_ERROR "TUTTI_TEST_MPIS=${TUTTI_TEST_MPIS}: ${given} is no program.")
  endif()
  tutti_mpi_flags(TUTTI_TEST_MPIS ${compiler})
  find_library(file NAMES ${library} PATHS ${folders} NO_DEFAULT_PATH NO_CACHE)
  tutti_mpi_launcher(launcher ${compiler} ${family} ${version})
  if(NOT file OR NOT launcher)
    message(FATAL_ERROR "TUTTI_TEST_MPIS=${TUTTI_TEST_MPIS}: ${compiler} has no library "
                        "lib${library}.so (in ${folders}), or no launcher beside it (${others}).")
  endif()
  set(abi ${family})
  set(of_abi "")
  if(is_standard)
    set(abi standard)
    set(of_abi _abi)
  endif()
  string(REGEX REPLACE "[.].*" "" major "${version}")
  set(suffix ${family}${major}${of_abi})
  message(STATUS "MPI: tests with ${name} ${version} of ${compiler}, launcher: ${launcher}")

  set(mpi tests_${suffix})
  add_library(${mpi} INTERFACE)
  target_include_directories(${mpi} SYSTEM INTERFACE ${includes})
  target_compile_definitions(${mpi} INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX
                                              $<$<BOOL:${is_standard}>:MPI_ABI>)
  target_link_libraries(${mpi} INTERFACE ${file})

  add_library(${mpi}_linked OBJECT ${PROJECT_SOURCE_DIR}/runtime/mpi/linked.cpp
                                   ${PROJECT_SOURCE_DIR}/runtime/mpi/plugin/calls.cpp)
  target_link_libraries(${mpi}_linked PRIVATE ${mpi})
  tutti_mpi_options(${mpi}_linked)
  tutti_library(${mpi}_tutti STATIC)
  target_sources(${mpi}_tutti PRIVATE $<TARGET_OBJECTS:${mpi}_linked>)
  target_link_libraries(${mpi}_tutti PRIVATE ${mpi})
  set_target_properties(${mpi}_tutti PROPERTIES OUTPUT_NAME tutti-${suffix})
  add_library(${mpi}_main OBJECT support/mpi_main.cpp)
  tutti_test_options(${mpi}_main ${mpi}_tutti ${mpi})

  tutti_mpirun(${family} ${version} ${launcher})
  tutti_preload_tests(_${suffix} ${compiler} ${abi} other_mpi)
  # The program; the source that includes <mpi.h>, if one does; ranks. Few, because MPICH's keep
  # their cores all the same: beside compilers, store_test took 15 s with two, 87 s with three.
  foreach(row "store_test||2" "communicator_test||2" "mismatch_test||2" "early_collectives_test||2"
              "groups_mpi_test|groups_test.cpp|4" "mpi_progress_test|mpi_progress_test.cpp|2"
              "own_mpi_test|own_mpi_test.cpp|1 2")
    string(REGEX MATCH "^(.*)[|](.*)[|](.*)$" row "${row}")
    set(program ${CMAKE_MATCH_1})
    set(source ${CMAKE_MATCH_2})
    string(REPLACE " " ";" all_ranks "${CMAKE_MATCH_3}")
    set(objects $<TARGET_OBJECTS:${mpi}_main>)
    if(program STREQUAL own_mpi_test)
      set(objects $<TARGET_OBJECTS:tests_unit_main>)
    endif()
    if(source)
      list(APPEND objects mpi/${source})
    else()
      list(APPEND objects $<TARGET_OBJECTS:${program}>)
    endif()
    set(name ${program}_${suffix})
    tutti_test_program(${name} ${objects} LIBRARIES ${mpi}_tutti ${mpi})
    foreach(ranks IN LISTS all_ranks)
      tutti_add_mpi_entry(${name}_np${ranks} ${name} ${ranks})
      set_tests_properties(${name}_np${ranks} PROPERTIES LABELS "mpi;other_mpi")
      if(program STREQUAL early_collectives_test)
        set_tests_properties(${name}_np${ranks} PROPERTIES PROCESSORS 1)  # it waits
      endif()
    endforeach()
  endforeach()
endfunction()

foreach(compiler IN LISTS TUTTI_TEST_MPIS)
  tutti_test_mpi(${compiler})
endforeach()
