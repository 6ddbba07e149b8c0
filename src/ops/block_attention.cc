// SPDX-License-Identifier: Apache-2.0
// block_attention: the second step of attention. Queries against loaded keys and values, as partial results.
#include <cmath>
#include <limits>
#include <vector>

#include "ops/attention_util.h"
#include "ops/block_attention_kernel.h"
#include "ops/infer_util.h"

namespace atb {
namespace {

using In = BlockAttentionInput;

// Extents q [B, T, H, D], k [KB, KV, panels, D, 16], v [KB, KV, S, D] with KB = B or 1.
void require_blocks(const InferArgs& args) {
  require_float(args, In::kQ);
  require_float(args, In::kK);
  require_float(args, In::kV);
  require_rank(args, In::kQ, 4);
  require_rank(args, In::kK, 5);
  require_rank(args, In::kV, 4);
  const Shape& q = args.type(In::kQ).shape;
  const Shape& k = args.type(In::kK).shape;
  const Shape& v = args.type(In::kV).shape;
  if (!(k[0] == Dim(1))) require_equal(args, q[0], k[0], "batches of q and k");
  require_equal(args, k[0], v[0], "batches of k and v");
  require_equal(args, k[1], v[1], "heads of k and v");
  require_equal(args, k[2], Dim::floordiv(v[2] + Dim(kKeyPanel - 1), Dim(kKeyPanel)), "panels of k and ceil(S / 16)");
  require_equal(args, k[3], v[3], "head sizes of k and v");
  require_equal(args, q[3], k[3], "head sizes of q and k");
  require_equal(args, k[4], Dim(kKeyPanel), "keys of a panel and 16");
  require_head_groups(args, q[2], k[1]);
}

void require_shape(const InferArgs& args, size_t input, const Shape& shape) {
  require_float(args, input);
  require_rank(args, input, static_cast<int>(shape.size()));
  for (size_t i = 0; i < shape.size(); ++i) {
    require_equal(args, args.type(input).shape[i], shape[i], "extents of running results and of q");
  }
}

void require_running(const InferArgs& args, bool split) {
  const bool running = args.has(In::kOutput);
  if (args.has(In::kMax) != running || args.has(In::kSum) != running) {
    args.fail("running results are output, max and sum: give all three or none");
  }
  if (!running) return;
  if (split) args.fail("running results go on in one partial; split must be 0");
  const Shape& q = args.type(In::kQ).shape;
  require_shape(args, In::kOutput, q);
  require_shape(args, In::kMax, leading(q));
  require_shape(args, In::kSum, leading(q));
}

std::vector<Type> infer_block_attention(const InferArgs& args) {
  require_blocks(args);
  require_softcap(args);
  const int64_t split = args.attrs.integer("split");
  if (args.attrs.integer("window") < 0) args.fail("window must be 0 (none) or the number of visible keys");
  if (split < 0 || split % kAttentionPartition != 0) {
    args.fail("split " + std::to_string(split) + " must be 0 (one partial) or a multiple of 128 keys");
  }
  const Type& q = args.type(In::kQ);
  const Dim& keys = args.type(In::kV).shape[2];
  if (args.has(In::kMask)) require_scores_mask(args, In::kMask, {q.shape[0], q.shape[2], q.shape[1], keys});
  if (args.has(In::kFirstQuery)) {
    if (args.type(In::kFirstQuery).dtype != DType::kI32) args.fail("first_query must be i32");
    require_rank(args, In::kFirstQuery, 1);
    const Dim& count = args.type(In::kFirstQuery).shape[0];
    if (!(count == Dim(1))) require_equal(args, count, q.shape[0], "positions in first_query and batch");
  }
  require_running(args, split > 0);
  Shape rows = leading(q.shape);
  rows.insert(rows.begin(), split == 0 ? Dim(1) : Dim::floordiv(keys + Dim(split - 1), Dim(split)));
  Shape output = rows;
  output.push_back(q.shape[3]);
  return {{q.dtype, output}, {q.dtype, rows}, {q.dtype, rows}};
}

// A query row of the reference: which keys it sees, and where its results go.
template <class T>
struct RowCall {
  RefCall<T>& call;
  int64_t batch, token, head, begin, end;
  int64_t out;  // row of the outputs
};

template <class T>
T mask_at(const RefTensor<T>& mask, const RowCall<T>& row, int64_t key) {
  const int64_t index[] = {row.batch, row.head, row.token, key};
  const size_t rank = mask.shape.size();
  int64_t at = 0;
  for (size_t i = 0; i < rank; ++i) at = at * mask.shape[i] + (mask.shape[i] == 1 ? 0 : index[4 - rank + i]);
  return mask.f[static_cast<size_t>(at)];
}

template <class T>
T score(const RowCall<T>& row, const T* q, int64_t panel_row, int64_t n, int64_t key) {
  const RefCall<T>& call = row.call;
  const Attrs& attrs = call.node.attrs();
  const RefTensor<T>& k = *call.inputs[In::kK];
  T sum = 0;
  for (int64_t d = 0; d < n; ++d) {
    const int64_t at = ((panel_row + key / kKeyPanel) * n + d) * kKeyPanel + key % kKeyPanel;
    sum += q[d] * k.f[static_cast<size_t>(at)];
  }
  sum *= static_cast<T>(attrs.real("scale"));
  const T softcap = static_cast<T>(attrs.real("softcap"));
  if (softcap > 0) sum = softcap * std::tanh(sum / softcap);
  const bool masked = In::kMask < call.inputs.size() && call.inputs[In::kMask] != nullptr;
  return masked ? sum + mask_at(*call.inputs[In::kMask], row, key) : sum;
}

template <class T>
void attend_row(const RowCall<T>& row) {
  RefCall<T>& call = row.call;
  const RefTensor<T>&q = *call.inputs[In::kQ], &k = *call.inputs[In::kK], &v = *call.inputs[In::kV];
  const int64_t tokens = q.shape[1], heads = q.shape[2], n = q.shape[3], kv_heads = k.shape[1], keys = v.shape[2];
  const int64_t kv_batch = k.shape[0] == 1 ? 0 : row.batch;
  const int64_t kv_row = kv_batch * kv_heads + row.head / (heads / kv_heads);
  const int64_t q_row = (row.batch * tokens + row.token) * heads + row.head;
  const auto at = [](int64_t index) { return static_cast<size_t>(index); };
  const bool given = In::kSum < call.inputs.size() && call.inputs[In::kSum] != nullptr;
  const bool running = given && call.inputs[In::kSum]->f[at(q_row)] != 0;
  T largest = running ? call.inputs[In::kMax]->f[at(q_row)] : -std::numeric_limits<T>::infinity();
  std::vector<T> weights;
  for (int64_t key = row.begin; key < row.end; ++key) {
    weights.push_back(score(row, q.f.data() + q_row * n, kv_row * k.shape[2], n, key));
    largest = std::max(largest, weights.back());
  }
  T sum = 0;
  T* out = call.outputs[0]->f.data() + row.out * n;
  if (running) {
    const T factor = std::exp(call.inputs[In::kMax]->f[at(q_row)] - largest);
    sum = call.inputs[In::kSum]->f[at(q_row)] * factor;
    for (int64_t d = 0; d < n; ++d) out[d] = call.inputs[In::kOutput]->f[at(q_row * n + d)] * factor;
  }
  for (int64_t key = row.begin; key < row.end && largest != -std::numeric_limits<T>::infinity(); ++key) {
    const T weight = std::exp(weights[at(key - row.begin)] - largest);
    sum += weight;
    for (int64_t d = 0; d < n; ++d) out[d] += weight * v.f[at((kv_row * keys + key) * n + d)];
  }
  call.outputs[1]->f[at(row.out)] = largest;
  call.outputs[2]->f[at(row.out)] = sum;
}

template <class T>
void block_attention_reference(RefCall<T>& call) {
  const RefTensor<T>& q = *call.inputs[In::kQ];
  const Attrs& attrs = call.node.attrs();
  const int64_t tokens = q.shape[1], keys = call.inputs[In::kV]->shape[2];
  const int64_t window = attrs.integer("window");
  const int64_t split = attrs.integer("split") == 0 ? keys : attrs.integer("split");
  const RefTensor<T>* first = In::kFirstQuery < call.inputs.size() ? call.inputs[In::kFirstQuery] : nullptr;
  std::fill(call.outputs[0]->f.begin(), call.outputs[0]->f.end(), T(0));
  int64_t out = 0;
  for (int64_t part = 0; part < call.outputs[1]->shape[0]; ++part) {
    for (int64_t batch = 0; batch < q.shape[0]; ++batch) {
      const int64_t shift =
          first == nullptr ? keys - tokens : first->i[first->i.size() == 1 ? 0 : static_cast<size_t>(batch)];
      for (int64_t token = 0; token < tokens; ++token) {
        const int64_t position = shift + token;
        const int64_t last = std::min(keys, (part + 1) * split);
        const int64_t end = attrs.flag("causal") ? std::min(last, position + 1) : last;
        const int64_t begin = std::max(part * split, window > 0 ? position + 1 - window : 0);
        for (int64_t head = 0; head < q.shape[2]; ++head) {
          attend_row(RowCall<T>{call, batch, token, head, begin, std::max(begin, end), out++});
        }
      }
    }
  }
}

}  // namespace

void register_op_block_attention(OpRegistry& registry) {
  OpDef op;
  op.name = "block_attention";
  op.doc =
      "Attention of q [B, T, H, D] over the blocks of qkv_load, not yet divided. With the scores s = q k^T * scale (or "
      "softcap * tanh(s / softcap)) + mask of the visible keys of a range: max = max s, sum = sum of e^(s - max), "
      "output = sum of e^(s - max) v; -inf, 0 and 0 where no key is visible. `split` cuts the keys into ranges of that "
      "many, each a partial result on axis 0: output [P, B, T, H, D], max and sum [P, B, T, H]. Keys and values of "
      "batch 1 serve every query of the batch and are read once for it. mask is added and broadcasts to [B, H, T, S]. "
      "Query t stands at key first_query + t, counted from the first key given (one for all, or one a batch; S - T "
      "where absent): causal hides the keys beyond it, a window those at or before it minus the window. Running "
      "results output [B, T, H, D], max and sum [B, T, H] of earlier keys are gone on from. Keys are folded in "
      "partitions of 128 from the first one given. Milakov and Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, "
      "arXiv:2205.14135.";
  op.inputs = {{"q"},         {"k"},        {"v"}, {"mask", true}, {"first_query", true}, {"output", true},
               {"max", true}, {"sum", true}};
  op.outputs = {{"output"}, {"max"}, {"sum"}};
  op.attrs = {{"scale", AttrKind::kReal, 1.0, true, "factor of the scores"},
              {"softcap", AttrKind::kReal, 0.0, false, "soft bound of the scaled scores; 0: none"},
              {"causal", AttrKind::kBool, false, false, "hide later keys"},
              {"window", AttrKind::kInt, int64_t{0}, false, "visible keys up to the query's own; 0: all"},
              {"split", AttrKind::kInt, int64_t{0}, false, "keys of a partial result, a multiple of 128; 0: all"}};
  op.infer = infer_block_attention;
  op.flops = [](const Node& node) {
    return Dim(4) * num_elements(node.input(In::kQ)->shape()) * node.input(In::kV)->dim(2);
  };
  op.reference = reference_kernel([](auto& call) { block_attention_reference(call); });
  op.make_cpu_kernel = make_block_attention_kernel;
  registry.add(std::move(op));
}

}  // namespace atb
