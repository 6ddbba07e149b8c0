# SPDX-License-Identifier: Apache-2.0
# Enables C++; a missing or old compiler ends the configuration with the name of the package to install.
include(CheckLanguage)
check_language(CXX)
if(NOT CMAKE_CXX_COMPILER)
  message(FATAL_ERROR "No C++ compiler found: install g++ (Debian, Ubuntu) or gcc-c++ (Fedora), version 12 or newer")
endif()
enable_language(CXX)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "g++ ${CMAKE_CXX_COMPILER_VERSION} found, 12 or newer needed: install g++-12 and set CXX=g++-12")
endif()
