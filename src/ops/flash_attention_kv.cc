// SPDX-License-Identifier: Apache-2.0
// flash_attention_kv: attention of a step's queries over the cached keys and values of their sequences.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/attention_util.h"
#include "ops/flash_attention_kv_kernel.h"
#include "ops/infer_util.h"

namespace atb {
namespace {

// A mask [B, H, T, S] of a step of B sequences of T rows each.
void require_sequences_mask(const InferArgs& args) {
  require_float(args, 2);
  require_rank(args, 2, 4);
  const Shape& q = args.type(0).shape;
  const Shape& mask = args.type(2).shape;
  if (!(mask[1] == Dim(1))) require_equal(args, mask[1], q[1], "heads of q and mask");
  if (!(mask[0] == Dim(1)) && !(mask[2] == Dim(1))) {
    require_equal(args, mask[0] * mask[2], q[0], "rows of q and of mask [B, H, T, S]");
  }
}

std::vector<Type> infer_flash_attention_kv(const InferArgs& args) {
  require_float(args, 0);
  require_rank(args, 0, 3);
  require_state(args, 1);
  require_head_groups(args, args.type(0).shape[1], Dim(args.attrs.integer("kv_heads")));
  if (!args.attrs.flag("causal")) args.fail("causal must be true: later tokens are not in the cache");
  require_softcap(args);
  if (args.attrs.integer("window") < 0) args.fail("window must be 0 (none) or the number of visible keys");
  if (args.has(2)) require_sequences_mask(args);
  return {args.type(0)};
}

// The result of one query row: keys [begin, end) of kv head `kv_head`, all of its `mask` indexed by key; null: none.
template <class T>
void attend_row(const T* q, const typename RefKvState<T>::Entry& entry, int64_t kv_heads, int64_t kv_head,
                int64_t head_dim, int64_t begin, int64_t end, T scale, T softcap, const T* mask, T* out) {
  const auto at = [&](int64_t key, int64_t d) {
    return static_cast<size_t>((key * kv_heads + kv_head) * head_dim + d);
  };
  std::vector<T> weight(static_cast<size_t>(end - begin));
  T largest = -std::numeric_limits<T>::infinity();
  for (int64_t key = begin; key < end; ++key) {
    T score = 0;
    for (int64_t d = 0; d < head_dim; ++d) score += q[d] * entry.k[at(key, d)];
    score *= scale;
    if (softcap > 0) score = softcap * std::tanh(score / softcap);
    if (mask != nullptr) score += mask[key];
    weight[static_cast<size_t>(key - begin)] = score;
    largest = std::max(largest, score);
  }
  if (largest == -std::numeric_limits<T>::infinity()) {  // sees nothing
    std::fill_n(out, head_dim, T(0));
    return;
  }
  T sum = 0;
  for (T& w : weight) sum += w = std::exp(w - largest);
  for (int64_t d = 0; d < head_dim; ++d) {
    T value = 0;
    for (int64_t key = begin; key < end; ++key) value += weight[static_cast<size_t>(key - begin)] * entry.v[at(key, d)];
    out[d] = value / sum;
  }
}

// The row of a mask [B, H, T, S] for row `row` of the `index`-th sequence; null without one.
template <class T>
const T* reference_mask_row(const RefCall<T>& call, int64_t index, int64_t head, int64_t row, int64_t end) {
  if (call.inputs.size() < 3 || call.inputs[2] == nullptr) return nullptr;
  const RefTensor<T>& mask = *call.inputs[2];
  const int64_t at[] = {index, head, row};
  int64_t offset = 0;
  for (size_t axis = 0; axis < 3; ++axis) {
    const int64_t i = mask.shape[axis] == 1 ? 0 : at[axis];
    require(i < mask.shape[axis] && end <= mask.shape[3], Code::kInvalidArgument, "[flash_attention_kv] ",
            call.node.name(), ": the mask has no entry for a row and its ", end, " keys");
    offset = offset * mask.shape[axis] + i;
  }
  return mask.f.data() + offset * mask.shape[3];
}

template <class T>
void flash_attention_kv_reference(RefCall<T>& call) {
  const RefTensor<T>& q = *call.inputs[0];
  const Attrs& attrs = call.node.attrs();
  const int64_t heads = q.shape[1];
  const int64_t head_dim = q.shape[2];
  const int64_t kv_heads = attrs.integer("kv_heads");
  const int64_t window = attrs.integer("window");
  const int64_t slot = attrs.integer("slot");
  int64_t index = -1;
  for (const RefSequence& sequence : reference_sequences(call.sequences, q.shape[0])) {
    ++index;
    const auto& entry = call.inputs[1]->state->entries[{slot, sequence.id}];
    for (int64_t row = 0; row < sequence.rows; ++row) {
      const int64_t end = sequence.past + row + 1;
      const int64_t begin = window > 0 ? std::max<int64_t>(end - window, 0) : 0;
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t at = ((sequence.row_begin + row) * heads + head) * head_dim;
        attend_row(q.f.data() + at, entry, kv_heads, head / (heads / kv_heads), head_dim, begin, end,
                   static_cast<T>(attrs.real("scale")), static_cast<T>(attrs.real("softcap")),
                   reference_mask_row(call, index, head, row, end), call.outputs[0]->f.data() + at);
      }
    }
  }
}

// q and the keys and values of T tokens read, the result written; what a longer past adds depends on the run.
Dim flash_attention_kv_bytes(const Node& node) {
  const Shape& q = node.input(0)->shape();
  const Dim element(static_cast<int64_t>(dtype_size(node.input(0)->type().dtype)));
  const Dim kv = Dim(2) * q[0] * Dim(node.attrs().integer("kv_heads")) * q[2] * element;
  const Dim bytes = bytes_of(*node.input(0)) + kv + bytes_of(*node.output());
  const Value* mask = node.inputs().size() > 2 ? node.input(2) : nullptr;
  return mask == nullptr ? bytes : bytes + bytes_of(*mask);
}

}  // namespace

void register_op_flash_attention_kv(OpRegistry& registry) {
  OpDef op;
  op.name = "flash_attention_kv";
  op.doc =
      "softmax(q K^T * scale) V over the cached keys and values in slot `slot`, for q [T, H, D]. A row at position p "
      "of its "
      "sequence sees that sequence's keys <= p, and > p - window if there is a window; query head h reads kv head "
      "h / (H / kv_heads). "
      "With a softcap the scaled scores s become softcap * tanh(s / softcap). mask [B or 1, H or 1, rows or 1, S] is "
      "added, for a step of B sequences, of at most S keys; keys that have -inf are not seen, and a row that "
      "sees none gives 0. Counts K and V of T tokens as read. Dao "
      "et al. 2022, arXiv:2205.14135.";
  op.inputs = {{"q"}, {"kv"}, {"mask", true}};
  op.attrs = {{"slot", AttrKind::kInt, int64_t{0}, true, "which of the cache's layers"},
              {"scale", AttrKind::kReal, 1.0, true, "factor of the scores"},
              {"softcap", AttrKind::kReal, 0.0, false, "soft bound of the scaled scores; 0: none"},
              {"causal", AttrKind::kBool, true, false, "always true"},
              {"window", AttrKind::kInt, int64_t{0}, false, "visible keys up to the row's own; 0: all"},
              {"kv_heads", AttrKind::kInt, int64_t{0}, true, "heads of the cached keys and values"}};
  op.has_state = true;
  op.infer = infer_flash_attention_kv;
  op.flops = [](const Node& node) { return Dim(4) * num_elements(node.input(0)->shape()) * node.input(0)->dim(0); };
  op.bytes = flash_attention_kv_bytes;
  op.reference = reference_kernel([](auto& call) { flash_attention_kv_reference(call); });
  op.make_cpu_kernel = [](const KernelRequest& request) { return make_flash_attention_kv_kernel(request); };
  registry.add(std::move(op));
}

}  // namespace atb
