# Whether GPUs are built for, by nvcc, and with which headers of NCCL. Sets TUTTI_WITH_CUDA and
# TUTTI_NCCL_INCLUDE; what is built with it runs on machines without a GPU, too. A build by pip
# (SKBUILD) is for the GPUs of its machine, where nothing names others.
#
# tutti_cuda_options(target) is tutti_compile_options() for a target with .cu files.
set(TUTTI_CUDA AUTO CACHE STRING "Build for GPUs: AUTO (where nvcc is found), ON or OFF")
set_property(CACHE TUTTI_CUDA PROPERTY STRINGS AUTO ON OFF)
set(TUTTI_CUDA_OLDEST 12.0)  # the first nvcc that compiles C++20

# Sets the variable to the reason why nvcc cannot be used, or to nothing.
function(tutti_look_for_nvcc reason)
  set(${reason} "" PARENT_SCOPE)
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(${reason} "no nvcc that compiles with this C++ compiler: put its folder into PATH or set \
CUDACXX; if it was installed only now, delete CMakeCache.txt" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE text ERROR_QUIET)
  string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" found "${text}")
  if(NOT found OR CMAKE_MATCH_1 VERSION_LESS TUTTI_CUDA_OLDEST)
    set(${reason} "${CMAKE_CUDA_COMPILER} is CUDA ${CMAKE_MATCH_1}, and ${TUTTI_CUDA_OLDEST} or \
later is needed" PARENT_SCOPE)
  endif()
endfunction()

# Sets the variable to the compute capabilities of the GPUs that nvidia-smi names, such as 80;90.
function(tutti_look_for_gpus capabilities)
  set(found "")
  find_program(smi nvidia-smi PATHS /usr/lib/wsl/lib NO_CACHE)
  if(smi)
    execute_process(COMMAND ${smi} --query-gpu=compute_cap --format=csv,noheader TIMEOUT 60
                    OUTPUT_VARIABLE text ERROR_QUIET RESULT_VARIABLE code)
    if(code EQUAL 0)
      string(REPLACE "\n" ";" lines "${text}")
      foreach(line IN LISTS lines)
        if(line MATCHES "^ *([0-9]+)\\.([0-9]+) *$")
          list(APPEND found ${CMAKE_MATCH_1}${CMAKE_MATCH_2})
        endif()
      endforeach()
    endif()
  endif()
  list(REMOVE_DUPLICATES found)
  set(${capabilities} ${found} PARENT_SCOPE)
endfunction()

# Sets the variable to what nvcc compiles for GPUs of these capabilities: machine code, or, for one
# that it does not know yet, the newest PTX that it does, which the GPU's driver translates.
function(tutti_architectures_of capabilities architectures)
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE text ERROR_QUIET)
  string(REGEX MATCHALL "[0-9]+" known "${text}")
  set(found "")
  foreach(capability IN LISTS capabilities)
    set(best 0)
    foreach(one IN LISTS known)
      if(one GREATER best AND NOT one GREATER capability)
        set(best ${one})
      endif()
    endforeach()
    if(best EQUAL capability)
      list(APPEND found ${capability}-real)
    elseif(best GREATER 0)
      list(APPEND found ${best}-virtual)
    endif()
  endforeach()
  list(REMOVE_DUPLICATES found)
  set(${architectures} ${found} PARENT_SCOPE)
endfunction()

# NCCL's library is loaded when a program runs; here its header is enough. pip installs it, too.
function(tutti_look_for_nccl)
  set(folders $ENV{NCCL_ROOT} $ENV{NCCL_HOME} ${NCCL_ROOT} ${NCCL_HOME})
  find_package(Python3 QUIET COMPONENTS Interpreter)
  if(Python3_FOUND)
    execute_process(COMMAND ${Python3_EXECUTABLE} -c "import nvidia.nccl as n; print(n.__path__[0])"
                    OUTPUT_VARIABLE from_pip OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  find_path(TUTTI_NCCL_INCLUDE nccl.h HINTS ${folders} ${CUDAToolkit_INCLUDE_DIRS} ${from_pip}
            PATH_SUFFIXES include DOC "The folder of nccl.h")
endfunction()

set(TUTTI_WITH_CUDA OFF)
set(TUTTI_WHY_NO_CUDA "TUTTI_CUDA is OFF")
set(others "CUDAARCHS=90, or another architecture, builds for GPUs that are not here, and \
CMAKE_ARGS=-DTUTTI_CUDA=ON for the usual ones")
set(is_for_this_machine OFF)
set(gpus "")
if(SKBUILD AND TUTTI_CUDA STREQUAL "AUTO" AND NOT DEFINED ENV{CUDAARCHS}
   AND NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  tutti_look_for_gpus(gpus)
  set(is_for_this_machine ON)
endif()
if(TUTTI_CUDA STREQUAL "AUTO" AND TUTTI_SANITIZE)
  set(TUTTI_WHY_NO_CUDA "sanitizers see the CPU alone, and so do the kernels' tests without a GPU")
elseif(is_for_this_machine AND NOT gpus)
  set(TUTTI_WHY_NO_CUDA "nvidia-smi names no GPU here; ${others}")
elseif(TUTTI_CUDA)
  tutti_look_for_nvcc(TUTTI_WHY_NO_CUDA)
  if(NOT TUTTI_WHY_NO_CUDA AND is_for_this_machine)
    tutti_architectures_of("${gpus}" CMAKE_CUDA_ARCHITECTURES)
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(TUTTI_WHY_NO_CUDA "${CMAKE_CUDA_COMPILER} does not compile for the GPUs here, of compute \
capability ${gpus}; ${others}")
    endif()
  endif()
  if(NOT TUTTI_WHY_NO_CUDA)
    set(TUTTI_WITH_CUDA ON)
  elseif(NOT TUTTI_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "TUTTI_CUDA=${TUTTI_CUDA}, but ${TUTTI_WHY_NO_CUDA}. TUTTI_CUDA=OFF builds "
                        "without GPUs.")
  endif()
endif()

if(TUTTI_WITH_CUDA)
  if(NOT is_for_this_machine)
    # Machine code for Turing, Ampere and Hopper, and what a driver translates for later ones.
    set(architectures "75-real;80-real;90")
    if(DEFINED ENV{CUDAARCHS})
      set(architectures $ENV{CUDAARCHS})
    endif()
    set(CMAKE_CUDA_ARCHITECTURES ${architectures} CACHE STRING "GPUs that are built for")
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  if(NOT DEFINED CMAKE_CUDA_HOST_COMPILER AND NOT DEFINED ENV{CUDAHOSTCXX})
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  endif()
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  find_package(CUDAToolkit REQUIRED)
  tutti_look_for_nccl()
  message(STATUS "GPUs: CUDA ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}; "
                 "NCCL: ${TUTTI_NCCL_INCLUDE}")
else()
  message(STATUS "GPUs: not built for: ${TUTTI_WHY_NO_CUDA}")
endif()

# -fmad=false: the counterpart of -ffp-contract=off, so that a GPU computes the bits that a CPU
# does. constexpr functions (bit_cast, the conversions of 16-bit floats) run on both as they are.
function(tutti_cuda_options target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false --expt-relaxed-constexpr
                               -Xcompiler=-Wall,-Wextra,-fvisibility=hidden,-ffp-contract=off>)
  target_include_directories(${target} PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
endfunction()
