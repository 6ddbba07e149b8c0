// SPDX-License-Identifier: Apache-2.0
#include "bindings/profile.h"

#include <nanobind/stl/string.h>

#include "atb/language_model.h"
#include "runtime/generate/engine.h"

namespace atb {

namespace nb = nanobind;

void bind_profile(nb::module_& module) {
  module.def(
      "profile_json", [](LanguageModel& engine, bool each_node) { return engine.engine().profile_json(each_node); },
      nb::arg("engine"), nb::arg("each_node") = false, nb::call_guard<nb::gil_scoped_release>(),
      "The trace that `engine` records, summed by node, as JSON.");
}

}  // namespace atb
