# HDF5C::hdf5, HDF5's C library alone. CMake's own FindHDF5 would want the C language enabled and every library that HDF5 itself was
# linked with; of a shared one we need none of them. HDF5_ROOT says where to look first.
find_path(HDF5C_INCLUDE_DIR hdf5.h HINTS "${HDF5_ROOT}" ENV HDF5_ROOT PATH_SUFFIXES include hdf5/serial)
find_library(HDF5C_LIBRARY NAMES hdf5_serial hdf5 HINTS "${HDF5_ROOT}" ENV HDF5_ROOT PATH_SUFFIXES lib hdf5/serial)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(HDF5C REQUIRED_VARS HDF5C_LIBRARY HDF5C_INCLUDE_DIR)
if(HDF5C_FOUND AND NOT TARGET HDF5C::hdf5)
  add_library(HDF5C::hdf5 UNKNOWN IMPORTED)
  set_target_properties(HDF5C::hdf5 PROPERTIES
    IMPORTED_LOCATION "${HDF5C_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${HDF5C_INCLUDE_DIR}")
endif()
mark_as_advanced(HDF5C_INCLUDE_DIR HDF5C_LIBRARY)
