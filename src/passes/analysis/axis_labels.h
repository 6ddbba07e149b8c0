// SPDX-License-Identifier: Apache-2.0
// What each axis of each value stands for in a cache-free decoder on ids [B, T], or why an operator cannot be cached.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace atb {

// kFeature: anything that depends on neither the sequence nor the position by its index. kLast: the last token alone,
// an axis of extent 1. kRow: the batch where that axis was dropped, so that each of its rows is a last token.
// An axis of key positions exists only inside attention, which SDPA must have fused.
enum class Axis : uint8_t { kFeature, kBatch, kToken, kLast, kRow };

using Labels = std::vector<Axis>;

// Labels of every value of a graph whose only input is `ids`, i32 or i64 [B, T]. A token axis has extent T and its rows
// are independent of each other: every operator but attention works row by row. Values that depend on position alone
// have a token axis and no batch axis (a unit axis in its place counts as batch).
class AxisLabels {
 public:
  // Errors: kUnsupported "[insert_kv_cache] node (operator, scope): what mixes tokens or depends on T otherwise".
  explicit AxisLabels(const Graph& graph);

  const Labels& of(const Value* value) const { return labels_.at(value); }
  // Whether the node does nothing in a step: selects the last token, which the step does for itself, or views it.
  bool selects_last(const Node& node) const;
  const Dim& tokens() const { return tokens_; }  // T
  const Value* ids() const { return ids_; }

  // The shape of the value in a step: without the batch axis, all tokens where it has the last one of each row.
  Shape step_shape(const Value* value) const;
  // The place of an axis of `value` there.
  int64_t step_axis(const Value* value, int64_t axis) const;

 private:
  void label_node(const Node& node);
  void check_extents(const Node& node, const Value& value) const;

  std::unordered_map<const Value*, Labels> labels_;
  const Value* ids_ = nullptr;
  Dim batch_ = 1;
  Dim tokens_ = 1;
};

// Operators that work element by element on operands that broadcast: add, where, less, ....
bool is_broadcasting(const Node& node);
// Operators of one operand that work element by element: silu, cast, ....
bool is_elementwise(const Node& node);

// Throws the refusal described above.
[[noreturn]] void refuse_cache(const Node& node, const std::string& why);

}  // namespace atb
