// SPDX-License-Identifier: Apache-2.0
// The extension module atb._core: the C++ API with Python types, and nothing else.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bindings/block.h"
#include "bindings/doctor.h"
#include "bindings/engine.h"
#include "bindings/errors.h"
#include "bindings/files.h"
#include "bindings/graph.h"
#include "bindings/graph_builder.h"
#include "bindings/kv_cache.h"
#include "bindings/profile.h"
#include "bindings/sampler.h"
#include "bindings/tensor.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/thread_team.h"
#include "kernels/roofline.h"

namespace nb = nanobind;

NB_MODULE(_core, module) {
  nb::set_leak_warnings(false);  // interpreter shutdown order is not ours
  atb::bind_errors(module);
  atb::bind_tensor(module);
  atb::bind_kv_cache(module);
  atb::bind_graph(module);
  atb::bind_graph_builder(module);
  atb::bind_block(module);
  atb::bind_engine(module);
  atb::bind_files(module);
  atb::bind_profile(module);
  atb::bind_sampler(module);
  atb::bind_doctor(module);

  module.def(
      "set_log_level", [](const std::string& name) { atb::set_log_level(atb::log_level_from_name(name)); },
      nb::arg("name"));
  module.def(
      "log",
      [](const std::string& level, const std::string& where, const std::string& text) {
        atb::log(atb::log_level_from_name(level), where, text);
      },
      nb::arg("level"), nb::arg("where"), nb::arg("text"), "A line \"[where] text\" of the log.");
  module.def(
      "peak_rss_mb", [] { return static_cast<double>(atb::peak_rss_bytes()) / (1 << 20); },
      "Largest resident size of this process so far, in MiB.");
  module.def("available_cpus", &atb::available_cpus);
  module.def(
      "roofline",
      [](int threads, size_t bytes) {
        atb::ThreadTeam team(threads);
        atb::Roofline limits;
        {
          const nb::gil_scoped_release release;
          limits = atb::measure_roofline(team, bytes);
        }
        nb::dict result;
        result["read_gb_s"] = limits.read_gb_s;
        result["f32_gflop_s"] = limits.f32_gflop_s;
        return result;
      },
      nb::arg("threads"), nb::arg("bytes"), nb::sig("def roofline(threads: int, bytes: int) -> dict[str, float]"),
      "Read bandwidth over a working set of `bytes` and f32 multiply-add peak.");
}
