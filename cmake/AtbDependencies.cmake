# SPDX-License-Identifier: Apache-2.0
# Third-party packages. A missing one ends the configuration with the name of the package to install.
find_package(Threads REQUIRED)

find_path(ATB_HWY_INCLUDE hwy/highway.h)
find_library(ATB_HWY_LIBRARY hwy)
if(NOT ATB_HWY_INCLUDE OR NOT ATB_HWY_LIBRARY)
  message(FATAL_ERROR "Highway not found: install libhwy-dev (Debian, Ubuntu) or highway-devel (Fedora)")
endif()
add_library(atb_hwy INTERFACE)
target_include_directories(atb_hwy SYSTEM INTERFACE ${ATB_HWY_INCLUDE})
target_link_libraries(atb_hwy INTERFACE ${ATB_HWY_LIBRARY})
# SSE4 and below are off: under AVX2 the library says so and stops. AVX3_DL brings VNNI. Builds with tests have SSE4 for
# the operator harness alone (kernels/target.h): vectors of 16 bytes, and several targets on every machine.
if(ATB_BUILD_TESTS AND ATB_TEST_TARGETS)
  set(disabled_targets HWY_SSSE3)
else()
  set(disabled_targets "(HWY_SSSE3|HWY_SSE4)")
endif()
# Below the least target there are no kernels; clang would compile them for emulated vectors.
target_compile_definitions(atb_hwy INTERFACE HWY_WANT_AVX3_DL HWY_BROKEN_EMU128=1 "HWY_DISABLED_TARGETS=${disabled_targets}")

find_path(ATB_JSON_INCLUDE nlohmann/json.hpp)
if(NOT ATB_JSON_INCLUDE)
  message(FATAL_ERROR "nlohmann-json not found: install nlohmann-json3-dev (Debian, Ubuntu) or json-devel (Fedora)")
endif()
add_library(atb_json INTERFACE)
target_include_directories(atb_json SYSTEM INTERFACE ${ATB_JSON_INCLUDE})

add_library(atb_options INTERFACE)
target_compile_options(atb_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror -fno-math-errno -ffp-contract=off)
if(ATB_SANITIZE)
  target_compile_options(atb_options INTERFACE -fsanitize=${ATB_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(atb_options INTERFACE -fsanitize=${ATB_SANITIZE})
endif()
