// SPDX-License-Identifier: Apache-2.0
// Normal forms that split merged projections: a linear of which only parts are read becomes one linear a part, with
// those rows of the weight. QKV+RoPE and GateUp see three and two linears then, and merge them again; handles select
// rows, so no bytes are copied either way.
//
// The parts may be slices of the last axis (phi3), or of heads that a reshape made of it: [.., H, 3 * D] (GPT-NeoX),
// [.., H + 2, D] (Falcon). Tried after rotary embeddings are recognised: those are made of slices too.
#include <algorithm>
#include <numeric>

#include "passes/canonical/canonical.h"
#include "passes/canonical/chain_util.h"
#include "passes/canonical/slice_util.h"

namespace atb {
namespace {

bool is_number(const Dim& dim) { return dim.is_constant(); }

// Rows that `slice` selects of N numbered row-major over `features`, the axes of its input from `first_axis` on.
std::vector<int32_t> rows_of(const Slice& slice, const Shape& features, size_t first_axis) {
  const size_t axis = slice.axis - first_axis;
  int64_t inner = 1;
  for (size_t i = axis + 1; i < features.size(); ++i) inner *= features[i].constant();
  const int64_t extent = features[axis].constant();
  int64_t outer = 1;
  for (size_t i = 0; i < axis; ++i) outer *= features[i].constant();
  std::vector<int32_t> rows;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t at = slice.begin.constant(); at < slice.end.constant(); at += slice.step) {
      for (int64_t i = 0; i < inner; ++i) rows.push_back(static_cast<int32_t>((o * extent + at) * inner + i));
    }
  }
  return rows;
}

// What is sliced: a linear, or the reshape of one that only splits its last axis.
struct Merged {
  const Node* linear = nullptr;
  size_t first_axis = 0;  // of the features
};

std::optional<Merged> merged_linear(const Value* value) {
  const Node* node = value->producer();
  if (node == nullptr) return std::nullopt;
  if (node->is("linear")) return Merged{node, static_cast<size_t>(value->rank()) - 1};
  if (!node->is("reshape")) return std::nullopt;
  const Node* linear = made_by(node->input(0), "linear");
  if (linear == nullptr || !read_once(linear->output())) return std::nullopt;
  const Shape& from = linear->output()->shape();
  const Shape& to = value->shape();
  const size_t first = from.size() - 1;
  if (to.size() < from.size() || !std::equal(from.begin(), from.end() - 1, to.begin())) return std::nullopt;
  return Merged{linear, first};
}

// All readers are slices of feature axes that together read no row twice.
bool only_parts_read(const Value* value, const Merged& merged) {
  const Shape features(value->shape().begin() + static_cast<std::ptrdiff_t>(merged.first_axis), value->shape().end());
  if (value->graph()->is_output(value) || !std::all_of(features.begin(), features.end(), is_number)) return false;
  std::vector<bool> taken(static_cast<size_t>(num_elements(features).constant()), false);
  for (const Use& use : value->uses()) {
    if (!use.node->is("slice")) return false;
    const Slice slice = slice_of(*use.node);
    if (slice.axis < merged.first_axis || !is_number(slice.begin) || !is_number(slice.end)) return false;
    for (const int32_t row : rows_of(slice, features, merged.first_axis)) {
      if (taken[static_cast<size_t>(row)]) return false;
      taken[static_cast<size_t>(row)] = true;
    }
  }
  return true;
}

}  // namespace

bool linear_part(const Node& node, Rewriter& rewriter) {
  const Value* value = node.input(0);
  const std::optional<Merged> merged = merged_linear(value);
  if (!merged || !only_parts_read(value, *merged)) return false;
  const Node& linear = *merged->linear;
  const Value* bias = linear.input(2);
  const bool constant = linear.input(1)->is_constant() && (bias == nullptr || bias->is_constant());
  if (!constant) return false;
  const Shape features(value->shape().begin() + static_cast<std::ptrdiff_t>(merged->first_axis), value->shape().end());
  const std::vector<int32_t> rows = rows_of(slice_of(node), features, merged->first_axis);
  std::vector<Value*> inputs = {linear.input(0),
                                rewriter.constant(Constant::permute_rows(linear.input(1)->constant(), rows))};
  if (bias != nullptr) inputs.push_back(rewriter.constant(Constant::permute_rows(bias->constant(), rows)));
  return pass_through(node, rewriter.reshape(rewriter.value("linear", inputs), node.output()->shape()), rewriter);
}

bool slice_above_transpose(const Node& node, Rewriter& rewriter) {
  const Node* transpose = made_by(node.input(0), "transpose");
  if (transpose == nullptr) return false;
  Slice slice = slice_of(node);
  const auto& perm = transpose->attrs().get<std::vector<int64_t>>("perm");
  slice.axis = static_cast<size_t>(perm[slice.axis]);
  return pass_through(node, rewriter.transpose(rebuilt(rewriter, transpose->input(0), slice), perm), rewriter);
}

}  // namespace atb
