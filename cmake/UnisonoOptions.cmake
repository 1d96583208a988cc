# Compile and link options of our own targets. Carried by an interface target, never by global flags.
add_library(unisono_options INTERFACE)
target_compile_features(unisono_options INTERFACE cxx_std_20)
target_compile_options(
  unisono_options
  INTERFACE -Wall
            -Wextra
            -Wshadow
            -Wconversion
            -Wnon-virtual-dtor
            -fvisibility=hidden
            $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
            $<$<BOOL:${UNISONO_WERROR}>:-Werror>)
if(UNISONO_SANITIZE)
  target_compile_options(unisono_options INTERFACE -fsanitize=${UNISONO_SANITIZE}
                                                   -fno-omit-frame-pointer)
  target_link_options(unisono_options INTERFACE -fsanitize=${UNISONO_SANITIZE})
  if(UNISONO_SANITIZE MATCHES "undefined")
    target_compile_options(unisono_options INTERFACE -fno-sanitize-recover=undefined)
  endif()
endif()
