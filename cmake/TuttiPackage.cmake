# `cpack` in the build folder: a .deb of everything that `cmake --install` installs.
#
# dpkg-shlibdeps names the libraries that programs and library need; mpirun is started, and
# the MPI is loaded, so that neither is linked.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tutti)
set(CPACK_PACKAGE_CONTACT "The Tutti authors <tutti@project.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
# Plug-ins link no MPI: one of those that there are plug-ins for is enough.
set(packages ${TUTTI_MPI_ABIS})
list(TRANSFORM packages REPLACE "^openmpi$" openmpi-bin)
list(TRANSFORM packages REPLACE "^standard$" "mpich (>= 5)")
list(JOIN packages " | " CPACK_DEBIAN_PACKAGE_DEPENDS)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS dataset-fashion-mnist)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "g++, libopenmpi-dev")
include(CPack)
