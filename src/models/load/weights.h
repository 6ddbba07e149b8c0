// SPDX-License-Identifier: Apache-2.0
// The weights of one model under short names, whatever file they come from: what a family builds its graph with.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "frontends/named_tensors.h"
#include "models/model.h"

namespace atb {

enum class WeightFormat { kHf, kGguf, kAbsent };

// Short names are "embed.weight" and, in layer 3, "layers.3.q.weight"; in files they carry the prefix "model.layers.3."
// or "blk.3." and the names of the family's table. Every tensor handed out is checked and counted as used.
class Weights {
 public:
  Weights(WeightFormat format, NamedTensors tensors, const std::vector<WeightName>& names);
  // No data: every weight asked for is an absent constant of this type.
  Weights(DType absent_dtype, const std::vector<WeightName>& names);

  WeightFormat format() const { return format_; }
  bool has(std::string_view name, int layer = -1, std::string_view suffix = ".weight") const;
  // A constant named by its short name. kNotFound if the file has no such tensor, kDataLoss if its shape is another
  // ("tensor, actual, expected"), kUnsupported for an element type that is no float.
  ConstantRef take(std::string_view name, std::vector<int64_t> shape, int layer = -1,
                   std::string_view suffix = ".weight");
  // A bias: required where the configuration declares it; in GGUF files, which do not, taken if there is one. Else
  // null.
  ConstantRef take_bias(std::string_view name, int64_t extent, int layer, bool declared);
  // As `take`, for a table that is gathered: f16 and bf16 become encodings of f32, so that activations are f32.
  ConstantRef take_table(std::string_view name, std::vector<int64_t> shape);

  // The tensor's name in the file: "model.layers.3.self_attn.q_proj.weight".
  std::string file_name(std::string_view name, int layer = -1, std::string_view suffix = ".weight") const;
  void mark_used(const std::string& file_name) { used_.insert(file_name); }
  std::vector<std::string> unused() const;
  uint64_t used_bytes() const;
  bool any_quantized() const;  // among the used ones

  void warn(std::string text) { warnings_.push_back(std::move(text)); }
  const std::vector<std::string>& warnings() const { return warnings_; }
  const NamedTensors& tensors() const { return tensors_; }

 private:
  const WeightName& entry(std::string_view name) const;

  WeightFormat format_;
  DType absent_dtype_ = DType::kF32;
  NamedTensors tensors_;
  const std::vector<WeightName>& names_;
  std::set<std::string> used_;
  std::vector<std::string> warnings_;
};

// The same bytes under another name.
ConstantRef renamed(const ConstantRef& constant, const std::string& name);

// True if two constants hold the same stored bytes, row by row.
bool same_bytes(const Constant& a, const Constant& b);

// "[49152, 576]"
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace atb
