// SPDX-License-Identifier: Apache-2.0
#include "bindings/kv_cache.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>

#include "api/kv_slots.h"
#include "core/error.h"

namespace atb {
namespace {

namespace nb = nanobind;

std::unique_ptr<KvSlots> make(int64_t slots, int64_t kv_heads, int64_t head_dim, int64_t max_tokens,
                              const std::string& dtype) {
  return std::make_unique<KvSlots>(KvSlotsOptions{slots, kv_heads, head_dim, max_tokens, kv_dtype_named(dtype)});
}

}  // namespace

DType kv_dtype_named(const std::string& name) {
  if (name == "f32") return DType::kF32;
  if (name == "bf16") return DType::kBF16;
  throw_error(Code::kInvalidArgument, "[kv] dtype is ", name, ", allowed are f32 and bf16");
}

void bind_kv_cache(nb::module_& module) {
  nb::class_<KvSlots>(module, "KVCache")
      .def(nb::new_(&make), nb::arg("slots"), nb::arg("kv_heads"), nb::arg("head_dim"), nb::arg("max_tokens"),
           nb::arg("dtype"))
      .def_prop_ro("batch", &KvSlots::batch)
      .def("length", &KvSlots::length, nb::arg("slot"))
      .def_prop_ro("blocks_in_use", &KvSlots::blocks_in_use)
      .def_prop_ro("shared_blocks", &KvSlots::shared_blocks)
      .def_prop_ro("pool_blocks_in_use", &KvSlots::pool_blocks_in_use)
      .def("truncate", &KvSlots::truncate, nb::arg("tokens"))
      .def("reset", &KvSlots::reset)
      .def("fork", &KvSlots::fork);
}

}  // namespace atb
