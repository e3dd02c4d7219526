# `cmake --install`: headers, both libraries, the CMake package and the files of pkg-config, so that
# another project can say find_package(tutti) or pkg-config tutti. apps/ and runtime/preload/ have
# such lines of their own. A COMPONENT is a package of TuttiPackage; `tools` has what names none.
include(CMakePackageConfigHelpers)
set(TUTTI_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)

install(DIRECTORY include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev
        FILES_MATCHING PATTERN *.hpp PATTERN *.h)

# Two sets of targets: a project that links the shared library does not need MPI, nor its target.
set_target_properties(tutti PROPERTIES EXPORT_NAME static)
set_target_properties(tutti_shared PROPERTIES EXPORT_NAME shared)
install(TARGETS tutti EXPORT tutti-static-targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT static)
install(TARGETS tutti_shared EXPORT tutti-shared-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT dev)
install(TARGETS ${TUTTI_PLUGINS}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/${TUTTI_PLUGIN_FOLDER} COMPONENT library)
foreach(row static/static shared/dev)
  get_filename_component(kind ${row} DIRECTORY)
  get_filename_component(component ${row} NAME)
  install(EXPORT tutti-${kind}-targets NAMESPACE tutti:: DESTINATION ${TUTTI_PACKAGE_DIR}
          COMPONENT ${component})
endforeach()

configure_package_config_file(cmake/tutti-config.cmake.in ${PROJECT_BINARY_DIR}/tutti-config.cmake
                              INSTALL_DESTINATION ${TUTTI_PACKAGE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tutti-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tutti-config.cmake
              ${PROJECT_BINARY_DIR}/tutti-config-version.cmake
        DESTINATION ${TUTTI_PACKAGE_DIR} COMPONENT dev)

# pkg-config: `tutti` is the shared library, `tutti-static` the archive, and the MPI and the runtime
# of CUDA that it needs.
# The prefix follows from where the file is, so that the installed folder can be moved.
set(TUTTI_PC_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(TUTTI_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
else()
  file(RELATIVE_PATH TUTTI_PC_PREFIX /prefix/${TUTTI_PC_DIR} /prefix)
  set(TUTTI_PC_PREFIX "\${pcfiledir}/${TUTTI_PC_PREFIX}")
endif()
set(TUTTI_PC_MPI ${MPI_CXX_LINK_FLAGS} ${MPI_CXX_LIBRARIES})
list(FILTER TUTTI_PC_MPI EXCLUDE REGEX "mpi_?(ch)?_?cxx")  # the C interface alone
list(JOIN TUTTI_PC_MPI " " TUTTI_PC_MPI)
if(TUTTI_WITH_CUDA)
  set(TUTTI_PC_CUDA "-L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
endif()
foreach(row tutti/dev tutti-static/static)
  get_filename_component(name ${row} DIRECTORY)
  get_filename_component(component ${row} NAME)
  configure_file(cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${TUTTI_PC_DIR}
          COMPONENT ${component})
endforeach()

# The launcher with its parts, and what says where parts are, also under names of their own in the
# folder of programs.
set(TUTTI_SCRIPTS ${CMAKE_INSTALL_DATADIR}/tutti/mpirun)
foreach(name launch config bind_gpu slurm_cpu slurm_gpu slurm_benchmark pbs_cpu pbs_gpu
             pbs_benchmark)
  install(PROGRAMS scripts/mpirun/${name}.sh DESTINATION ${TUTTI_SCRIPTS})
endforeach()
install(PROGRAMS scripts/mpirun/plot.py scripts/mpirun/compare.py DESTINATION ${TUTTI_SCRIPTS})
install(FILES scripts/mpirun/machine.sh scripts/mpirun/placement.sh
              scripts/mpirun/dialects.sh scripts/mpirun/preload.sh scripts/mpirun/watch.sh
              scripts/mpirun/snapshots.sh scripts/mpirun/lost_hosts.sh
              scripts/mpirun/batch.sh
        DESTINATION ${TUTTI_SCRIPTS})
install(DIRECTORY scripts/mpirun/comparing DESTINATION ${TUTTI_SCRIPTS}
        FILES_MATCHING PATTERN *.py PATTERN *.cc)
# Batch systems start copies of the templates, so the installed ones name their folder.
install(CODE "
  foreach(name slurm_cpu slurm_gpu slurm_benchmark pbs_cpu pbs_gpu pbs_benchmark)
    set(file \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${TUTTI_SCRIPTS}/\${name}.sh\")
    file(READ \"\${file}\" text)
    string(REPLACE \"\\\${SCRIPTS:-scripts/mpirun}\"
           \"\\\${SCRIPTS:-\${CMAKE_INSTALL_PREFIX}/${TUTTI_SCRIPTS}}\" text \"\${text}\")
    file(WRITE \"\${file}\" \"\${text}\")
  endforeach()" COMPONENT tools)
foreach(name launch config)
  file(CREATE_LINK ../${TUTTI_SCRIPTS}/${name}.sh ${PROJECT_BINARY_DIR}/tutti-${name} SYMBOLIC)
  install(FILES ${PROJECT_BINARY_DIR}/tutti-${name} DESTINATION ${CMAKE_INSTALL_BINDIR})
endforeach()

# The pages and their pictures keep their folders, so that their links to each other work.
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
file(GLOB_RECURSE pages RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
     apps/*.md apps/*.svg cmake/*.md collectives/*.md include/*.md runtime/*.md scripts/*.md
     tests/*.md)
foreach(page README.md INSTALL.md FAQ.md CHANGELOG.md CONTRIBUTING.md SECURITY.md ${pages})
  get_filename_component(folder ${page} DIRECTORY)
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder})
endforeach()
