// SPDX-License-Identifier: Apache-2.0
#include "ops/plugin_context_util.h"

namespace atb {
namespace {

// Sizes of a call, in the order of the attribute.
struct Sizes {
  int64_t batch, tokens, keys;
  explicit Sizes(const Call& call) : batch(call.dims[0]), tokens(call.dims[1]), keys(call.dims[2]) {}
};

int64_t* positions_of(const Call& call) { return reinterpret_cast<int64_t*>(call.scratch); }
int64_t* lengths_of(const Call& call) { return positions_of(call) + call.dims[0] * call.dims[1]; }

int64_t past_of(const Call& call, int64_t sequence) {
  return call.sequences.empty() ? 0 : call.sequences[static_cast<size_t>(sequence)].past;
}

int64_t integer_at(const TensorView& x, int64_t offset) {
  return x.dtype == DType::kI64 ? x.as<const int64_t>()[offset] : x.as<const int32_t>()[offset];
}

// Element [row, column] of x [columns] or [rows or 1, columns or 1].
int64_t offset_of(const TensorView& x, int64_t row, int64_t column) {
  const size_t last = x.rank == 2 ? 1 : 0;
  const int64_t across = x.shape[last] == 1 ? 0 : column * x.stride[last];
  return last == 0 || x.shape[0] == 1 ? across : across + row * x.stride[0];
}

}  // namespace

PluginContext::PluginContext(const Node& node)
    : exists_(!node.attrs().get<Shape>("context").empty()),
      operands_(exists_ ? node.outputs().size() : node.inputs().size()),
      point_(node.attrs().text("target")),
      layer_(node.attrs().integer("of_layer")) {}

size_t PluginContext::bytes(const Call& call) {
  const Sizes n(call);
  return static_cast<size_t>(n.batch * n.tokens + n.batch) * sizeof(int64_t);
}

double PluginContext::cost(const Call& call) { return static_cast<double>(bytes(call)); }

bool PluginContext::fill(const Call& call) const noexcept {
  const Sizes n(call);
  if (!call.sequences.empty() && static_cast<int64_t>(call.sequences.size()) != n.batch) return false;
  const TensorView* positions = nullptr;
  const TensorView* mask = nullptr;
  for (size_t i = operands_; i < call.inputs.size(); ++i) {
    (call.inputs[i].dtype == DType::kBool ? mask : positions) = &call.inputs[i];
  }
  int64_t* position = positions_of(call);
  int64_t* length = lengths_of(call);
  for (int64_t b = 0; b < n.batch; ++b) {
    const int64_t past = past_of(call, b);
    for (int64_t t = 0; t < n.tokens; ++t) {
      *position++ = positions == nullptr ? past + t : integer_at(*positions, offset_of(*positions, b, t));
    }
    if (mask != nullptr && mask->dim(-1) != 1 && mask->dim(-1) < past + n.keys) return false;
    length[b] = mask == nullptr ? past + n.keys : 0;
    for (int64_t s = 0; mask != nullptr && s < past + n.keys; ++s) {
      length[b] += mask->as<const uint8_t>()[offset_of(*mask, b, s)] != 0 ? 1 : 0;
    }
  }
  return true;
}

atb_context PluginContext::of(const Call& call) const noexcept {
  const Sizes n(call);
  return {sizeof(atb_context), point_.c_str(), layer_, n.batch, n.tokens, positions_of(call), lengths_of(call)};
}

}  // namespace atb
