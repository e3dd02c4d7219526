# The options that every target of the project is compiled with.
#
# -ffp-contract=off: the bits of a sum are a contract, and a compiler that fuses a multiply with an
# add changes them from one loop to the next.
#
# -fvisibility=hidden: the shared library exports what is marked TUTTI_API. g++ then warns about
# exported classes with members of hidden ones (-Wattributes), which is how an implementation is
# hidden.
#
# -Wno-restrict: g++ 12 warns about "text" + std::string (GCC bug 105651).
#
# With TUTTI_UNITY several sources of a target are compiled as one, so that what all of them include
# is read once. So two sources of a target may not use one name for two things of their own, except
# for overloads with different types. g++ then takes what is local to a source for part of a header
# (-Wno-subobject-linkage).
#
# nvcc has options of its own: tutti_cuda_options in TuttiCuda.cmake.
function(tutti_compile_options target)
  set(options -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
              -ffp-contract=off -fvisibility=hidden
              $<$<COMPILE_LANGUAGE:CXX>:-fvisibility-inlines-hidden>
              $<$<CXX_COMPILER_ID:GNU>:-Wno-attributes> $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
  if(TUTTI_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    list(APPEND options $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
  if(TUTTI_SANITIZE)
    list(APPEND options -fsanitize=${TUTTI_SANITIZE} -fno-omit-frame-pointer
                        -fno-sanitize-recover=all)
    # A null pointer ends a program by itself, and AddressSanitizer sees what is outside of objects.
    if(TUTTI_SANITIZE MATCHES undefined)
      list(APPEND options -fno-sanitize=null,object-size,vptr)
    endif()
    # AddressSanitizer's checks are calls: a source compiles in a sixth less time.
    if(TUTTI_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
      list(APPEND options --param=asan-instrumentation-with-call-threshold=0)
    endif()
  endif()
  target_compile_options(${target} PRIVATE "$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:${options}>")
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TUTTI_UNITY}
                        UNITY_BUILD_BATCH_SIZE ${TUTTI_UNITY_SOURCES})
  tutti_link_options(${target})
endfunction()

# For what is around the library: less time to compile. Nobody looks at alignment, which matters
# where bytes are taken for numbers.
function(tutti_check_lightly target)
  if(TUTTI_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${target} PRIVATE -fno-sanitize=alignment)
  endif()
  if(TUTTI_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()

# Links with the sanitizers a target that is made of other targets' objects.
function(tutti_link_options target)
  if(TUTTI_SANITIZE)
    target_link_options(${target} PUBLIC -fsanitize=${TUTTI_SANITIZE})
  endif()
endfunction()
