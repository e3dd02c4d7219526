# `cpack` in the build folder makes Debian's packages of all that `cmake --install` installs:
#
#   libtutti0.1               library   what programs load, with the plug-ins for MPIs
#   libtutti-dev              dev       what programs are compiled with
#   tutti                     tools     programs, launcher and pages; whatever names no component
#   libtutti-openmpi-dev      static    the static library, which is of the build's MPI
#   tutti-benchmarks-openmpi  bench     the programs that call MPI themselves, so of the build's MPI
#
# The last two are named by the MPI: a build with MPICH makes libtutti-mpich-dev and
# tutti-benchmarks-mpich. These have the same files under the same names: one of each kind can be
# installed. The first three serve every MPI that the build has a plug-in for.
#
# Configured with -DCMAKE_INSTALL_PREFIX=/usr, the libraries lie in Debian's folder of the kind of
# machine (lib/x86_64-linux-gnu); with a CMake from 3.31 on, which knows the field Multi-Arch, those
# of several kinds can be installed together. dpkg-shlibdeps names the libraries that are linked. An
# MPI is loaded, and mpirun started, so that the packages of these are named here.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tutti)
set(CPACK_PACKAGE_CONTACT "The Tutti authors <tutti@project.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has its own
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL library dev tools static bench)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/runtime)
# Whatever the umask of the user is.
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

# Plug-ins link no MPI: one of those that there are plug-ins for is enough.
set(packages ${TUTTI_MPI_ABIS})
list(TRANSFORM packages REPLACE "^openmpi$" openmpi-bin)
list(TRANSFORM packages REPLACE "^standard$" "mpich (>= 5)")
list(JOIN packages " | " packages)
set(soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(library libtutti${soversion})
set(exactly "(= ${PROJECT_VERSION})")
set(mpi ${TUTTI_MPI_FAMILY})
set(debian ${PROJECT_BINARY_DIR}/debian)

# For dpkg-shlibdeps of packages that link the library, and to tell the loader of it.
file(WRITE ${debian}/shlibs "libtutti ${soversion} ${library} (>= ${PROJECT_VERSION})\n")
file(WRITE ${debian}/triggers "activate-noawait ldconfig\n")

# tutti_package(COMPONENT NAME SECTION SUMMARY TEXT [FIELD VALUE]...)
macro(tutti_package component name section summary text)
  string(TOUPPER ${component} upper)
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${summary} for MPI jobs\n${text}")
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
  set(CPACK_DEBIAN_${upper}_PACKAGE_MULTIARCH same)
  set(fields ${ARGN})
  while(fields)
    list(POP_FRONT fields field value)
    set(CPACK_DEBIAN_${upper}_PACKAGE_${field} "${value}")
  endwhile()
endmacro()

tutti_package(library ${library} libs "replicated key-value store"
  "Each rank of a job of mpirun holds a replica of the store, and pushes are
summed over all ranks. This package has the shared library, and what programs
that know MPI alone are preloaded with."
  RECOMMENDS "${packages}")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${debian}/shlibs)
if(CMAKE_VERSION VERSION_LESS 4.4)  # which writes it itself, and makes another one executable
  list(APPEND CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${debian}/triggers)
endif()
tutti_package(dev libtutti-dev libdevel "headers of a replicated key-value store"
  "What programs in C++ and C that use Tutti are compiled with: the headers, and
files for CMake and pkg-config."
  DEPENDS "${library} ${exactly}" SUGGESTS "g++, tutti ${exactly}")
tutti_package(tools tutti science "launcher, doctor and pages of a key-value store"
  "A launcher for jobs of mpirun, mpiexec and srun, templates for batch systems, a
doctor that looks at machine and job, a program that trains a network, and the
pages."
  DEPENDS "${library} ${exactly}, ${packages}, python3:any" MULTIARCH foreign
  RECOMMENDS "dataset-fashion-mnist, python3-matplotlib, tutti-benchmarks")
tutti_package(static libtutti-${mpi}-dev libdevel "static library of a key-value store"
  "The static library, whose programs link the MPI that it was built with:
${TUTTI_MPI_NAME}."
  DEPENDS "libtutti-dev ${exactly}, lib${mpi}-dev"
  PROVIDES libtutti-static-dev CONFLICTS libtutti-static-dev REPLACES libtutti-static-dev)
tutti_package(bench tutti-benchmarks-${mpi} science "benchmarks of collectives and checkpoints"
  "Programs that measure Tutti's collectives, checkpoints and overlap, beside the
collectives of the MPI that they were built with: ${TUTTI_MPI_NAME}."
  DEPENDS "${library} ${exactly}, tutti ${exactly}" MULTIARCH foreign
  PROVIDES tutti-benchmarks CONFLICTS tutti-benchmarks REPLACES tutti-benchmarks)

# What each package has besides, and `cmake --install` leaves out: files that Debian asks for. The
# manual is one page for all commands.
string(TIMESTAMP debian_date "%a, %d %b %Y %H:%M:%S +0000" UTC)
configure_file(cmake/debian/changelog.in ${debian}/changelog @ONLY)
configure_file(cmake/debian/tutti.1.in ${debian}/tutti.1 @ONLY)
configure_file(cmake/debian/also.1 ${debian}/also.1 COPYONLY)
find_program(TUTTI_GZIP gzip)
mark_as_advanced(TUTTI_GZIP)
if(TUTTI_GZIP)
  foreach(name changelog tutti.1 also.1)
    execute_process(COMMAND ${TUTTI_GZIP} -9nf ${debian}/${name})
  endforeach()
endif()
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} upper)
  set(name ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  set(to ${CMAKE_INSTALL_DATADIR})
  install(FILES cmake/debian/copyright ${debian}/changelog.gz OPTIONAL DESTINATION ${to}/doc/${name}
          COMPONENT ${component} EXCLUDE_FROM_ALL)
  if(EXISTS ${PROJECT_SOURCE_DIR}/cmake/debian/${component}.overrides)
    install(FILES cmake/debian/${component}.overrides RENAME ${name}
            DESTINATION ${to}/lintian/overrides COMPONENT ${component} EXCLUDE_FROM_ALL)
  endif()
endforeach()
install(FILES ${debian}/tutti.1.gz OPTIONAL DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
        COMPONENT tools EXCLUDE_FROM_ALL)
foreach(row tools/tutti-launch tools/tutti-config tools/tutti-doctor tools/train-fashion-mnist
            bench/collective-benchmark bench/checkpoint-benchmark bench/overlap-benchmark)
  get_filename_component(component ${row} DIRECTORY)
  get_filename_component(name ${row} NAME)
  install(FILES ${debian}/also.1.gz OPTIONAL RENAME ${name}.1.gz
          DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${component} EXCLUDE_FROM_ALL)
endforeach()
include(CPack)
