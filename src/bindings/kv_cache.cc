// SPDX-License-Identifier: Apache-2.0
#include "bindings/kv_cache.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>

#include "api/kv_cache.h"
#include "core/error.h"

namespace atb {
namespace {

namespace nb = nanobind;

std::unique_ptr<KvCache> make(int64_t slots, int64_t kv_heads, int64_t head_dim, int64_t max_tokens,
                              const std::string& dtype) {
  return std::make_unique<KvCache>(KvCacheOptions{slots, kv_heads, head_dim, max_tokens, kv_dtype_named(dtype)});
}

}  // namespace

DType kv_dtype_named(const std::string& name) {
  if (name == "f32") return DType::kF32;
  if (name == "bf16") return DType::kBF16;
  throw_error(Code::kInvalidArgument, "[kv] dtype is ", name, ", allowed are f32 and bf16");
}

void bind_kv_cache(nb::module_& module) {
  nb::class_<KvCache>(module, "KVCache")
      .def(nb::new_(&make), nb::arg("slots"), nb::arg("kv_heads"), nb::arg("head_dim"), nb::arg("max_tokens"),
           nb::arg("dtype"))
      .def_prop_ro("batch", &KvCache::batch)
      .def("length", &KvCache::length, nb::arg("slot"))
      .def_prop_ro("blocks_in_use", &KvCache::blocks_in_use)
      .def_prop_ro("shared_blocks", &KvCache::shared_blocks)
      .def_prop_ro("pool_blocks_in_use", &KvCache::pool_blocks_in_use)
      .def("truncate", &KvCache::truncate, nb::arg("tokens"))
      .def("reset", &KvCache::reset)
      .def("fork", &KvCache::fork);
}

}  // namespace atb
