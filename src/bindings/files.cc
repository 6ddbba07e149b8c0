// SPDX-License-Identifier: Apache-2.0
#include "bindings/files.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "atb/language_model.h"
#include "frontends/gguf.h"
#include "ir/op.h"
#include "models/inspect.h"
#include "models/resolve.h"
#include "ops/plugin_util.h"

namespace atb {
namespace {

namespace nb = nanobind;

// Bytes that are no UTF-8 (some vocabularies hold them) come back with surrogate escapes, not as an error.
nb::object text(std::string_view bytes) {
  return nb::steal(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "surrogateescape"));
}

bool is_real(GgufType type) { return type == GgufType::kF32 || type == GgufType::kF64; }

nb::list to_list(const GgufArray& array) {
  nb::list list;
  if (array.type == GgufType::kString) {
    for (std::string_view item : array.strings) list.append(text(item));
  } else if (array.type == GgufType::kArray) {
    for (const GgufArray& item : array.arrays) list.append(to_list(item));
  } else {
    for (uint64_t i = 0; i < array.count; ++i) {
      if (is_real(array.type)) {
        list.append(array.number(i));
      } else if (array.type == GgufType::kBool) {
        list.append(array.integer(i) != 0);
      } else {
        list.append(array.integer(i));
      }
    }
  }
  return list;
}

nb::object to_object(const GgufValue& value) {
  return std::visit(
      [](const auto& held) -> nb::object {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, GgufArray>) {
          return to_list(held);
        } else if constexpr (std::is_same_v<T, std::string_view>) {
          return text(held);
        } else {
          return nb::cast(held);
        }
      },
      value.value);
}

nb::dict gguf_metadata(const std::string& path) {
  const Gguf file = read_gguf(path);
  nb::dict result;
  for (const auto& [key, value] : file.metadata.items()) result[text(key)] = to_object(value);
  return result;
}

std::vector<std::string> operator_names() {
  std::vector<std::string> names;
  for (const OpDef* op : OpRegistry::instance().all()) names.push_back(op->name);
  return names;
}

}  // namespace

void bind_files(nb::module_& module) {
  using Release = nb::call_guard<nb::gil_scoped_release>;
  module.def("gguf_metadata", &gguf_metadata, nb::arg("path"),
             nb::sig("def gguf_metadata(path: str) -> dict[str, typing.Any]"),
             "All metadata of a GGUF file as Python objects.");
  module.def("resolve_model_path", &resolve_model_path, nb::arg("name"), Release());
  module.def("inspect_json", &inspect_json, nb::arg("path"), Release());
  module.def("operator_names", &operator_names, "Names of all operators of this build.");
  module.def("load_library", &load_library, nb::arg("path"), Release(),
             "Loads kernels from a shared library (atb/plugin.h); their names.");
  module.def(
      "load_plugin",
      [](const std::string& path, const std::string& preprocess, const std::string& postprocess) {
        const PluginLibrary library = load_block_plugin(path, preprocess, postprocess);
        return std::pair(std::pair(library.at_pre.before, library.at_pre.after),
                         std::pair(library.at_post.before, library.at_post.after));
      },
      nb::arg("path"), nb::arg("preprocess"), nb::arg("postprocess"), Release(),
      "Loads a library of kernels for blocks: those before and after an item at points pre_X and at points post_X.");
  module.def("explain_json", &explain_model, nb::arg("path_or_config"), nb::arg("tokens"), nb::arg("dtype"), Release());
}

}  // namespace atb
