# `cmake --install`: headers, library and the CMake package, so that another project can say
# find_package(tutti) and link tutti::tutti. apps/ installs its own programs.
include(CMakePackageConfigHelpers)
set(TUTTI_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)

target_compile_features(tutti PUBLIC cxx_std_20)  # a user's compiler reads the headers
install(TARGETS tutti EXPORT tutti-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN *.hpp PATTERN *.h)
install(EXPORT tutti-targets NAMESPACE tutti:: DESTINATION ${TUTTI_PACKAGE_DIR})

configure_package_config_file(cmake/tutti-config.cmake.in ${PROJECT_BINARY_DIR}/tutti-config.cmake
                              INSTALL_DESTINATION ${TUTTI_PACKAGE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tutti-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tutti-config.cmake
              ${PROJECT_BINARY_DIR}/tutti-config-version.cmake
        DESTINATION ${TUTTI_PACKAGE_DIR})
