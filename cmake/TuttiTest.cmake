# tutti_unit_test(name FILES a.cpp ... [LABELS ...] [UNSANITIZED])
#   One program, one ctest entry; no mpirun. LABELS threads: uses threads as ranks. UNSANITIZED: no
#   entry in a build with sanitizers, for which it takes longer than what they may find is worth.
# tutti_mpi_test(name FILES a.cpp ... [RANKS 1 2 3 4 8] [ENVIRONMENT A=1 ...])
#   One program, one ctest entry per rank count, started by mpirun.
#
# Labels that say how long a person waits: `quick` is a choice of entries that together take less
# than 90 s on 2 cores, and `thorough` is what scripts/mpirun/test.sh leaves to .ci/run.
set(TUTTI_RANK_COUNTS 1 2 3 4 8)
set(TUTTI_QUICK_TESTS
  types_test tensor_test row_sparse_test reduce_test runtime_test compression_test tuning_test
  collectives_test checkpoint_unit_test
  store_test_np2 communicator_test_np2 mismatch_test_np2 checkpoint_test_np2 messages_test_np2
  async_mpi_test_np2 own_mpi_test_np2 docs_test_np2 c_api_test_np2)

# Labels an entry `quick` where it is listed above.
function(tutti_label_quick entry)
  if(entry IN_LIST TUTTI_QUICK_TESTS)
    set_property(TEST ${entry} APPEND PROPERTY LABELS quick)
    set_property(GLOBAL APPEND PROPERTY TUTTI_LABELLED_QUICK ${entry})
  endif()
endfunction()

# At the end of all tests: a name in the list that is no entry stops the configuration.
function(tutti_check_quick_tests)
  get_property(labelled GLOBAL PROPERTY TUTTI_LABELLED_QUICK)
  set(unknown ${TUTTI_QUICK_TESTS})
  list(REMOVE_ITEM unknown ${labelled})
  if(unknown)
    message(FATAL_ERROR "TUTTI_QUICK_TESTS in cmake/TuttiTest.cmake names what is no entry: "
                        "${unknown}")
  endif()
endfunction()

# What launchers and sanitizers say of a program that has failed, for tests with a
# PASS_REGULAR_EXPRESSION: ctest then does not look at the exit code.
set(TUTTI_FAILED_PROGRAM "non-zero;BAD TERMINATION;Sanitizer;runtime error:")

# Compiling the tests takes longer than running them, so they are not optimized. Another MPI than
# the build's has a library of its own: cmake/TuttiTestMpis.cmake.
function(tutti_test_options name)
  set(libraries tutti MPI::MPI_CXX)
  if(ARGN)
    set(libraries ${ARGN})
  endif()
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE tests_reference ${libraries} doctest::doctest)
  tutti_compile_options(${name})
  target_compile_options(${name} PRIVATE -O0)
  tutti_check_lightly(${name})
endfunction()

# With TUTTI_UNITY: what most tests include is read once for all test programs, which saves a fifth
# of the time that a source takes. Each source still includes what it uses.
function(tutti_test_headers source header)
  add_executable(tests_headers ${source} $<TARGET_OBJECTS:tests_unit_main>)
  set_target_properties(tests_headers PROPERTIES
                        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  tutti_test_options(tests_headers)
  target_precompile_headers(tests_headers PRIVATE ${header})
endfunction()

# What tests compare with: it goes over all elements, so it is optimized, and no sanitizer looks at
# it. Behind the tests where they are linked: an inline function of both is theirs.
function(tutti_test_reference)
  add_library(tests_reference STATIC ${ARGN})
  target_include_directories(tests_reference PRIVATE ${PROJECT_SOURCE_DIR}
                             $<TARGET_PROPERTY:tutti,INTERFACE_INCLUDE_DIRECTORIES>)
  tutti_compile_options(tests_reference)
  target_compile_options(tests_reference PRIVATE -O2)
  if(TUTTI_SANITIZE)
    target_compile_options(tests_reference PRIVATE -fno-sanitize=all)
  endif()
endfunction()

# A main function, with all of doctest: compiled once, as $<TARGET_OBJECTS:tests_${kind}_main>.
function(tutti_test_main kind source)
  add_library(tests_${kind}_main OBJECT ${source})
  tutti_test_options(tests_${kind}_main)
endfunction()

function(tutti_test_program name)
  cmake_parse_arguments(arg "" "" "LIBRARIES" ${ARGN})
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX
                        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  tutti_test_options(${name} ${arg_LIBRARIES})
  if(TUTTI_UNITY AND "${arg_UNPARSED_ARGUMENTS}" MATCHES "tests_[a-z0-9_]+_main>")  # doctest's
    target_precompile_headers(${name} REUSE_FROM tests_headers)
  endif()
endfunction()

# What the sanitizers run: all programs labelled "unit", those labelled "threads", and all that
# mpirun starts.
add_custom_target(unit_tests)
add_custom_target(thread_tests)
add_custom_target(mpi_tests)

# In seconds: ends a hang, and lets a busy machine take 20 times as long as an idle one.
set(TUTTI_TEST_TIMEOUT 1200)
if(TUTTI_SANITIZE OR CMAKE_CROSSCOMPILING)
  set(TUTTI_TEST_TIMEOUT 6000)
endif()

function(tutti_unit_test name)
  cmake_parse_arguments(arg "UNSANITIZED" "" "FILES;LABELS" ${ARGN})
  tutti_test_program(${name} ${arg_FILES} $<TARGET_OBJECTS:tests_unit_main>)
  if(TUTTI_SANITIZE AND arg_UNSANITIZED)
    return()
  endif()
  add_dependencies(unit_tests ${name})
  if("threads" IN_LIST arg_LABELS)
    add_dependencies(thread_tests ${name})
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${TUTTI_TEST_TIMEOUT}
                       LABELS "unit;${arg_LABELS}")
  tutti_label_quick(${name})
  if(CMAKE_CROSSCOMPILING)
    # As below: optimizer_test, which makes many stores, grew to 21 GB.
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "TEST_EMULATED=1;TUTTI_ARENA_BYTES=256M")
    if("threads" IN_LIST arg_LABELS)
      target_compile_definitions(${name} PRIVATE TEST_EMULATED)
    endif()
  endif()
endfunction()

# Containers run as root, which Open MPI refuses unless both variables are set. Virtual machines and
# containers often have fewer cores than ranks: oversubscription. Binding would put all ranks of two
# tests on the same core. MPICH's launcher does neither unless it is told to.
#
# Sets, for this MPI: TUTTI_MPIRUN, the command; TUTTI_MPIRUN_ENVIRONMENT; TUTTI_MPIRUN_QUIET, what
# keeps it from speaking of exit codes.
function(tutti_mpirun family version launcher)
  set(environment OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
  set(quiet "")
  if(NOT family STREQUAL openmpi)
    set(command ${launcher})
    list(APPEND environment MPIR_CVAR_POLLS_BEFORE_YIELD=1)  # ranks keep their cores otherwise
  elseif(version VERSION_LESS 5)
    set(command ${launcher} --oversubscribe --bind-to none)
    set(quiet --quiet)
    # What Open MPI takes on machines without a network of its own. It looks for others first, and
    # libpsm2 measures the clock when it is loaded: 0.2 of the 0.33 s that a job of nothing takes.
    list(APPEND environment OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_pml=ob1)
  else()
    set(command ${launcher} --map-by :OVERSUBSCRIBE --bind-to none)
    # libfabric's search for networks takes 1.1 of the 1.25 s of an empty job of the wheel.
    list(APPEND environment PRTE_MCA_rmaps_default_mapping_policy=:OVERSUBSCRIBE OMPI_MCA_pml=ob1
                            OMPI_MCA_btl=^ofi)
  endif()
  # Ranks that wait keep their cores otherwise, although other tests want them: in
  # preload_results_openmpi5, for three quarters of the processor time.
  if(family STREQUAL openmpi)
    list(APPEND environment OMPI_MCA_mpi_yield_when_idle=1)
  endif()
  if(TUTTI_SANITIZE MATCHES address)
    list(APPEND environment ASAN_OPTIONS=detect_leaks=0)  # MPIs keep memory until the process ends
  endif()
  if(CMAKE_CROSSCOMPILING)
    # qemu-user keeps what it has noted of address space that was given back: with what a store
    # reserves by itself, two ranks of store_test grew to 10 GB each.
    list(APPEND environment TEST_EMULATED=1 TUTTI_ARENA_BYTES=256M)
  endif()
  set(TUTTI_MPIRUN ${command} PARENT_SCOPE)
  set(TUTTI_MPIRUN_ENVIRONMENT ${environment} PARENT_SCOPE)
  set(TUTTI_MPIRUN_QUIET "${quiet}" PARENT_SCOPE)
endfunction()
tutti_mpirun("${TUTTI_MPI_FAMILY}" "${TUTTI_MPI_VERSION}" "${MPIEXEC_EXECUTABLE}")

# More ranks than 4 are thorough, but for what is about the layout of ranks. Ranks wait for each
# other, so few of them are busy at a time: an entry takes two of ctest's places, a large one four.
function(tutti_add_mpi_entry entry program ranks)
  add_dependencies(mpi_tests ${program})
  add_test(NAME ${entry} COMMAND ${TUTTI_MPIRUN} -np ${ranks} ${CMAKE_CROSSCOMPILING_EMULATOR}
           $<TARGET_FILE:${program}>)
  set(labels mpi)
  set(places ${ranks})
  if(ranks GREATER 4)
    set(places 4)
    if(NOT program MATCHES "^(layout|groups)")
      list(APPEND labels thorough)
    endif()
  elseif(ranks GREATER 2)
    set(places 2)
  endif()
  set_tests_properties(${entry} PROPERTIES TIMEOUT ${TUTTI_TEST_TIMEOUT} LABELS "${labels}"
                       PROCESSORS ${places} ENVIRONMENT "${TUTTI_MPIRUN_ENVIRONMENT};${ARGN}")
  tutti_label_quick(${entry})
endfunction()

function(tutti_mpi_test name)
  cmake_parse_arguments(arg "" "" "FILES;RANKS;ENVIRONMENT" ${ARGN})
  if(NOT arg_RANKS)
    set(arg_RANKS ${TUTTI_RANK_COUNTS})
  endif()
  tutti_test_program(${name} ${arg_FILES})
  foreach(ranks IN LISTS arg_RANKS)
    tutti_add_mpi_entry(${name}_np${ranks} ${name} ${ranks} ${arg_ENVIRONMENT})
  endforeach()
endfunction()
