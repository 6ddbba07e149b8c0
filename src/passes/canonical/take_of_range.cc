// SPDX-License-Identifier: Apache-2.0
// Normal form: elements b, b + 1, ..., e of the first axis, listed by a constant or counted, are a slice.
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "passes/canonical/canonical.h"
#include "passes/canonical/chain_util.h"
#include "passes/canonical/slice_util.h"

namespace atb {
namespace {

constexpr int64_t kMostIndices = 4096;  // longer lists are not read to find out

template <class T>
std::vector<int64_t> elements(const Constant& constant, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  copy_dense(constant, reinterpret_cast<std::byte*>(values.data()));
  return {values.begin(), values.end()};
}

// The integers of a small constant; nothing for other values.
std::vector<int64_t> listed(const Value* value) {
  if (!value->is_constant() || value->constant()->absent() || value->rank() > 1) return {};
  const Dim count = num_elements(value->shape());
  if (!count.is_constant() || count.constant() < 1 || count.constant() > kMostIndices) return {};
  const Constant& constant = *value->constant();
  if (constant.dtype() == DType::kI64) return elements<int64_t>(constant, count.constant());
  if (constant.dtype() == DType::kI32) return elements<int32_t>(constant, count.constant());
  return {};
}

using Range = std::pair<Dim, Dim>;  // [begin, end)

// What consecutive indices name along an axis; those below zero count from its end, and must stay there.
std::optional<Range> range_of_list(const std::vector<int64_t>& indices, const Dim& extent) {
  if (indices.empty()) return std::nullopt;
  for (size_t i = 1; i < indices.size(); ++i) {
    if (indices[i] != indices[i - 1] + 1) return std::nullopt;
  }
  if (indices.front() >= 0) return Range{Dim(indices.front()), Dim(indices.back() + 1)};
  if (indices.back() >= 0) return std::nullopt;
  return Range{extent + Dim(indices.front()), extent + Dim(indices.back() + 1)};
}

// The same for 0, 1, 2, ... as they are counted, where none lies outside.
std::optional<Range> range_of_count(const Value* indices, const Dim& extent) {
  const Node* cast = made_by(indices, "cast");
  const Node* iota = made_by(cast == nullptr ? indices : cast->input(0), "iota");
  if (iota == nullptr || (extent - iota->output()->dim(0)).lower() < 0) return std::nullopt;
  return Range{Dim(0), iota->output()->dim(0)};
}

}  // namespace

bool take_of_range(const Node& node, Rewriter& rewriter) {
  if (node.inputs().size() != 2) return false;
  Value* x = node.input(0);
  const Dim& extent = x->dim(0);
  std::optional<Range> range = range_of_list(listed(node.input(1)), extent);
  if (!range) range = range_of_count(node.input(1), extent);
  if (!range) return false;
  Value* part = rebuilt(rewriter, x, {0, range->first, range->second, 1});
  return pass_through(node, rewriter.reshape(part, node.output()->shape()), rewriter);
}

}  // namespace atb
