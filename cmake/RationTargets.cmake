# Flags that every target of ours shares, and the way kernels are built once per instruction set.

function(ration_flags target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  # Options are structs with defaults, given by designated initializers: what is left out is meant to be.
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wconversion -Wno-sign-conversion
                         -Wno-missing-field-initializers)
  if(RATION_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(RATION_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${RATION_SANITIZE} -fno-omit-frame-pointer
                           -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=${RATION_SANITIZE})
  endif()
endfunction()

# Compiles the sources of `target` in each folder as one, where RATION_UNITY is ON or `what` (TESTS).
function(ration_unity target what)
  if(NOT RATION_UNITY MATCHES "^(ON|${what})$")
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source OUTPUT_VARIABLE path)
    cmake_path(GET path PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE folder)
    string(MAKE_C_IDENTIFIER "${target}_${folder}" group)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ takes a source that another includes for a header; and g++ 12 has false alarms about std::string where much is inlined.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage -Wno-restrict)
  endif()
endfunction()

# For what calls gloo and MPI itself, where they are built in.
function(ration_link_backends target)
  if(RATION_WITH_GLOO)
    target_link_libraries(${target} PRIVATE gloo)
  endif()
  if(RATION_WITH_MPI)
    target_link_libraries(${target} PRIVATE MPI::MPI_CXX)
  endif()
endfunction()

# Compiles each SOURCE once per instruction set into `target`: with RATION_LEVEL defined to baseline, x86_64_v3 or x86_64_v4, which
# the source takes as its namespace. No contraction, no errno, no trapping: the same bits in each.
function(ration_kernels target)
  set(levels baseline)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND levels x86_64_v3 x86_64_v4)
    target_compile_definitions(${target} PRIVATE RATION_X86_LEVELS=1)
  endif()
  foreach(level IN LISTS levels)
    set(kernels ${target}_kernels_${level})
    add_library(${kernels} OBJECT ${ARGN})
    ration_flags(${kernels})
    set_target_properties(${kernels} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_include_directories(${kernels} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    target_compile_definitions(${kernels} PRIVATE RATION_LEVEL=${level})
    target_compile_options(${kernels} PRIVATE -O3 -fno-math-errno -fno-trapping-math -ffp-contract=off)
    if(RATION_SANITIZE AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")  # which says so of each loop that it then cannot vectorize
      target_compile_options(${kernels} PRIVATE -Wno-pass-failed)
    endif()
    if(NOT level STREQUAL baseline)
      string(REPLACE "_v" "-v" march ${level})
      string(REPLACE "x86_64" "x86-64" march ${march})
      target_compile_options(${kernels} PRIVATE -march=${march})
      if(level STREQUAL x86_64_v4)
        target_compile_options(${kernels} PRIVATE -mprefer-vector-width=256)
      endif()
    endif()
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${kernels}>)
  endforeach()
endfunction()

# Flags for code that inlines Eigen: this machine's instructions and, from ranks that are threads already, no threads of its own.
function(ration_native target)
  target_compile_definitions(${target} PRIVATE EIGEN_DONT_PARALLELIZE)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized) # false alarms from the compiler's own intrinsics
  endif()
  if(RATION_NATIVE_EXAMPLES)
    # g++ 12 tunes AVX-512 code for a processor that it takes for a Zen 3: Eigen's products are 1.25 times faster without.
    target_compile_options(${target} PRIVATE -march=native -mtune=generic)
  endif()
endfunction()
