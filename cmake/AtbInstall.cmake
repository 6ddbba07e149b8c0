# SPDX-License-Identifier: Apache-2.0
# The library for applications, libatb.so, and its installation: `cmake --install` gives a tree that can be moved and
# that find_package(atb) finds. Third-party headers are not needed to use it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The layers that implement public headers go in whole, the others where these use them. Everything is compiled with
# hidden visibility, so that only what include/atb marks ATB_API can be linked to.
add_library(atb SHARED $<TARGET_OBJECTS:atb_core> $<TARGET_OBJECTS:atb_runtime> $<TARGET_OBJECTS:atb_api>)
add_library(atb::atb ALIAS atb)
target_link_libraries(atb PRIVATE atb_api atb_options)
target_link_options(atb PRIVATE -Wl,--exclude-libs,ALL)
target_include_directories(atb INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                         $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(atb INTERFACE cxx_std_20)
set_target_properties(atb PROPERTIES LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION}
                                     SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/atb)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/atbConfig.cmake.in ${PROJECT_BINARY_DIR}/atbConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/atbConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(TARGETS atb EXPORT atbTargets COMPONENT cpp)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/atb DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT cpp)
install(EXPORT atbTargets NAMESPACE atb:: DESTINATION ${package_dir} COMPONENT cpp)
install(FILES ${PROJECT_BINARY_DIR}/atbConfig.cmake ${PROJECT_BINARY_DIR}/atbConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT cpp)
