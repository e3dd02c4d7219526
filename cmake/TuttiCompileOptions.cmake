# What every target of the project is compiled with.
#
# -ffp-contract=off: the bits of a sum are a contract, and a compiler that fuses a multiply with an
# add changes them from one loop to the next.
#
# -Wno-restrict: g++ 12 warns about "text" + std::string (GCC bug 105651).
function(tutti_compile_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
                                           -Wno-sign-conversion -ffp-contract=off
                                           $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
  if(TUTTI_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${TUTTI_SANITIZE} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=${TUTTI_SANITIZE})
  endif()
endfunction()
