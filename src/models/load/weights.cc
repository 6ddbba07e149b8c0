// SPDX-License-Identifier: Apache-2.0
// Weights under short names: naming, shape checks, what was used.
#include "models/load/weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace atb {
namespace {

// Short name as seen in graphs.
std::string short_name(std::string_view name, int layer, std::string_view suffix) {
  std::string text = layer < 0 ? "" : "layers." + std::to_string(layer) + ".";
  return text.append(name).append(suffix);
}

void check_type(const Constant& tensor) {
  if (tensor.encoding() != nullptr) return;
  const DType dtype = tensor.dtype();
  require(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16, Code::kUnsupported,
          "[weights] tensor ", tensor.name(), " has element type ", dtype_name(dtype),
          "; weights must be f32, f16, bf16 or a GGUF block type");
}

// A table of halves as an encoding of f32 over the same bytes.
ConstantRef as_f32_table(const ConstantRef& table) {
  if (table->encoding() != nullptr || table->dtype() == DType::kF32) return table;
  return Constant::reinterpreted(table, DType::kF32, find_encoding(dtype_name(table->dtype())));
}

}  // namespace

Weights::Weights(WeightFormat format, NamedTensors tensors, const std::vector<WeightName>& names)
    : format_(format), tensors_(std::move(tensors)), names_(names) {}

Weights::Weights(DType absent_dtype, const std::vector<WeightName>& names)
    : format_(WeightFormat::kAbsent), absent_dtype_(absent_dtype), names_(names) {}

const WeightName& Weights::entry(std::string_view name) const {
  const auto found =
      std::find_if(names_.begin(), names_.end(), [name](const WeightName& entry) { return entry.name == name; });
  require(found != names_.end(), Code::kInternal, "[weights] the family has no name for ", name);
  return *found;
}

std::string Weights::file_name(std::string_view name, int layer, std::string_view suffix) const {
  const bool gguf = format_ == WeightFormat::kGguf;
  std::string text;
  if (layer >= 0) text = (gguf ? "blk." : "model.layers.") + std::to_string(layer) + ".";
  return text.append(gguf ? entry(name).gguf : entry(name).hf).append(suffix);
}

bool Weights::has(std::string_view name, int layer, std::string_view suffix) const {
  return format_ == WeightFormat::kAbsent || tensors_.contains(file_name(name, layer, suffix));
}

ConstantRef Weights::take(std::string_view name, std::vector<int64_t> shape, int layer, std::string_view suffix) {
  const std::string short_text = short_name(name, layer, suffix);
  if (format_ == WeightFormat::kAbsent) return Constant::absent(short_text, absent_dtype_, nullptr, std::move(shape));
  const std::string in_file = file_name(name, layer, suffix);
  const auto found = tensors_.find(in_file);
  require(found != tensors_.end(), Code::kNotFound, "[weights] the file has no tensor ", in_file,
          ", which the configuration calls for (", shape_text(shape), ")");
  const Constant& tensor = *found->second;
  require(tensor.shape() == shape, Code::kDataLoss, "[weights] tensor ", in_file, " has shape ",
          shape_text(tensor.shape()), ", expected ", shape_text(shape), " from the configuration");
  check_type(tensor);
  used_.insert(in_file);
  return renamed(found->second, short_text);
}

ConstantRef Weights::take_bias(std::string_view name, int64_t extent, int layer, bool declared) {
  const bool wanted = format_ == WeightFormat::kGguf ? has(name, layer, ".bias") : declared;
  return wanted ? take(name, {extent}, layer, ".bias") : nullptr;
}

ConstantRef Weights::take_table(std::string_view name, std::vector<int64_t> shape) {
  const ConstantRef table = take(name, std::move(shape));
  return format_ == WeightFormat::kAbsent ? table : as_f32_table(table);
}

std::vector<std::string> Weights::unused() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) {
    if (!used_.contains(name)) names.push_back(name);
  }
  return names;
}

uint64_t Weights::used_bytes() const {
  uint64_t bytes = 0;
  for (const std::string& name : used_) bytes += tensors_.at(name)->num_bytes();
  return bytes;
}

bool Weights::any_quantized() const {
  return std::any_of(used_.begin(), used_.end(),
                     [this](const std::string& name) { return tensors_.at(name)->encoding() != nullptr; });
}

ConstantRef renamed(const ConstantRef& constant, const std::string& name) {
  return Constant::concat_rows(name, {constant});
}

bool same_bytes(const Constant& a, const Constant& b) {
  if (a.dtype() != b.dtype() || a.encoding() != b.encoding() || a.shape() != b.shape()) return false;
  bool same = true;
  for (int64_t i = 0; same && i < a.num_rows(); ++i) same = std::memcmp(a.row(i), b.row(i), a.row_bytes()) == 0;
  // The comparison alone must not keep two large matrices resident.
  a.release_pages();
  b.release_pages();
  return same;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text.append(i ? ", " : "").append(std::to_string(shape[i]));
  return text + "]";
}

}  // namespace atb
