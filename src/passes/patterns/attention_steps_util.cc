// SPDX-License-Identifier: Apache-2.0
#include "passes/patterns/attention_steps_util.h"

namespace atb {

AttentionPartials attend_block(Rewriter& rewriter, Value* q, Value* k, Value* v, Value* mask, const Attrs& attrs,
                               const AttentionPartials& earlier) {
  const Node* load = rewriter.node("qkv_load", {q, k, v});
  std::vector<Value*> inputs = {load->output(0), load->output(1), load->output(2)};
  if (earlier.output != nullptr) {
    inputs.insert(inputs.end(), {mask, nullptr, earlier.output, earlier.max, earlier.sum});
  } else if (mask != nullptr) {
    inputs.push_back(mask);
  }
  const Node* block = rewriter.node("block_attention", inputs, attrs);
  return {block->output(0), block->output(1), block->output(2)};
}

AttentionPartials only_partial(Rewriter& rewriter, const AttentionPartials& partials) {
  const auto without_axis = [&](Value* x) {
    return rewriter.reshape(x, Shape(x->shape().begin() + 1, x->shape().end()));
  };
  return {without_axis(partials.output), without_axis(partials.max), without_axis(partials.sum)};
}

Value* finish_attention(Rewriter& rewriter, const AttentionPartials& partials) {
  return rewriter.value("output_merge", {partials.output, partials.max, partials.sum});
}

Value* part_of(Rewriter& rewriter, Value* x, int64_t axis, const Dim& begin, const Dim& end) {
  if (begin == Dim(0) && equal(end, x->dim(static_cast<int>(axis))) == Tri::kYes) return x;
  return rewriter.value("slice", {x}, {{"axis", axis}, {"bounds", Shape{begin, end}}});
}

}  // namespace atb
