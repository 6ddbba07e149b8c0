# SPDX-License-Identifier: Apache-2.0
# atb_layer(NAME [DEPENDS layers...] [REGISTERS kind] [REGISTERS_IN subfolder kind] [REGISTERS_FOLDERS kind])
#
# Makes the static library atb_NAME of every src/NAME/**/*.cc. With REGISTERS, each file src/NAME/x.cc defines
# `void register_<kind>_x(<Kind>Registry&)`, and a generated register_all.cc calls them all, explicitly and in file
# order: there is no list to keep and no self-registering static object that a linker could drop. Files whose name
# starts with an underscore or ends in _kernel, _util or is registry.cc do not register. With REGISTERS_FOLDERS, each
# folder src/NAME/x that holds a .cc file defines the function instead, in whichever of its files.
function(atb_layer name)
  cmake_parse_arguments(arg "" "REGISTERS;REGISTERS_FOLDERS" "DEPENDS;REGISTERS_IN" ${ARGN})
  set(dir ${CMAKE_SOURCE_DIR}/src/${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${dir}/*.cc)
  if(NOT sources)
    set(sources ${CMAKE_SOURCE_DIR}/cmake/empty.cc)
  endif()
  set(register_dir ${dir})
  set(kind ${arg_REGISTERS}${arg_REGISTERS_FOLDERS})
  if(arg_REGISTERS_IN)
    list(GET arg_REGISTERS_IN 0 sub)
    list(GET arg_REGISTERS_IN 1 kind)
    set(register_dir ${dir}/${sub})
  endif()
  if(arg_REGISTERS_FOLDERS)
    file(GLOB files CONFIGURE_DEPENDS ${dir}/*/*.cc)
    list(TRANSFORM files REPLACE "/[^/]*$" "")  # their folders
    list(REMOVE_DUPLICATES files)
  elseif(kind)
    file(GLOB files CONFIGURE_DEPENDS ${register_dir}/*.cc)
    list(FILTER files EXCLUDE REGEX "/(_[^/]*|[^/]*_kernel|[^/]*_util|registry)\\.cc$")
  endif()
  if(kind)
    atb_generate_registration(${register_dir} ${kind} "${files}" generated)
    list(APPEND sources ${generated})
  endif()
  add_library(atb_${name} STATIC ${sources})
  target_include_directories(atb_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  target_link_libraries(atb_${name} PUBLIC atb_hwy Threads::Threads PRIVATE atb_options atb_json)
  foreach(dep ${arg_DEPENDS})
    target_link_libraries(atb_${name} PUBLIC atb_${dep})
  endforeach()
endfunction()

# Writes the call list of `files` (or folders), whose names are those of the things that they register.
function(atb_generate_registration dir kind files out)
  list(SORT files)
  set(declarations "")
  set(calls "")
  string(SUBSTRING ${kind} 0 1 initial)
  string(TOUPPER ${initial} initial)
  string(SUBSTRING ${kind} 1 -1 rest)
  set(registry "${initial}${rest}Registry")
  foreach(file ${files})
    get_filename_component(stem ${file} NAME_WE)
    string(APPEND declarations "void register_${kind}_${stem}(${registry}&);\n")
    string(APPEND calls "  register_${kind}_${stem}(registry);\n")
  endforeach()
  set(path ${CMAKE_BINARY_DIR}/generated/register_all_${kind}s.cc)
  file(CONFIGURE OUTPUT ${path} CONTENT
"// Generated from the files of ${dir}; do not edit.
namespace atb {
class ${registry};
${declarations}
void register_all_${kind}s([[maybe_unused]] ${registry}& registry) {
${calls}}
}  // namespace atb
" @ONLY)
  set(${out} ${path} PARENT_SCOPE)
endfunction()
