// SPDX-License-Identifier: Apache-2.0
#include "ops/attention_util.h"

#include <cmath>
#include <string>

#include "ops/infer_util.h"

namespace atb {

void require_head_groups(const InferArgs& args, const Dim& heads, const Dim& kv_heads) {
  if (kv_heads.upper() <= 0) args.fail("there are 0 kv heads; at least 1 is needed");
  if (!heads.is_constant() || !kv_heads.is_constant()) return;
  if (heads.constant() % kv_heads.constant() != 0) {
    args.fail(heads.str() + " query heads are not a multiple of " + kv_heads.str() + " kv heads");
  }
}

void require_rotary_tables(const InferArgs& args, size_t x, size_t cos) {
  require_float(args, x);
  require_min_rank(args, x, 3);
  const Shape tokens = leading(args.type(x).shape, 2);
  for (size_t table = cos; table < cos + 2; ++table) {
    require_float(args, table);
    require_min_rank(args, table, 2);
    const Shape rows = leading(args.type(table).shape);
    if (rows.size() > tokens.size()) args.fail(args.op.inputs[table].name + " has more axes than the tokens of x");
    for (size_t i = 0; i < rows.size(); ++i) {
      require_equal(args, rows[i], tokens[tokens.size() - rows.size() + i], "tokens of x and its rotary table");
    }
  }
  require_equal(args, args.type(cos).shape.back(), args.type(cos + 1).shape.back(), "extents of cos and sin");
  const Dim rotated = Dim(2) * args.type(cos).shape.back();
  const Dim& head_dim = args.type(x).shape.back();
  if (rotated.lower() > head_dim.upper()) {
    args.fail("cos and sin rotate " + rotated.str() + " of only " + head_dim.str() + " features of a head");
  }
}

void require_softcap(const InferArgs& args) {
  const double softcap = args.attrs.real("softcap");
  if (!(softcap >= 0) || std::isinf(softcap)) {
    args.fail("softcap " + std::to_string(softcap) + " must be 0 (none) or positive and finite");
  }
}

void require_qkv(const InferArgs& args, bool shared) {
  for (size_t i = 0; i < 3; ++i) {
    require_float(args, i);
    require_rank(args, i, 4);
  }
  const Shape& q = args.type(0).shape;
  const Shape& k = args.type(1).shape;
  const Shape& v = args.type(2).shape;
  for (size_t axis = 0; axis < 4; ++axis) require_equal(args, k[axis], v[axis], "extents of k and v");
  if (!shared || !(k[0] == Dim(1))) require_equal(args, q[0], k[0], "batches of q and k");
  require_equal(args, q[3], k[3], "head sizes of q and k");
  require_head_groups(args, q[2], k[2]);
}

void require_scores_mask(const InferArgs& args, size_t input, const Shape& scores) {
  require_float(args, input);
  const Shape& mask = args.type(input).shape;
  require_min_rank(args, input, 1);
  if (mask.size() > scores.size()) args.fail("mask " + to_string(mask) + " has more axes than " + to_string(scores));
  for (size_t i = 0; i < mask.size(); ++i) {
    const Dim& extent = scores[scores.size() - mask.size() + i];
    const bool last = i + 1 == mask.size();
    if (!last && mask[i] == Dim(1)) continue;
    require_equal(args, mask[i], extent, "extents of mask and scores [B, H, T, S]");
  }
}

void require_state(const InferArgs& args, size_t input) {
  if (args.type(input).dtype != DType::kState) {
    args.fail(args.op.inputs[input].name + " must be a state, not " + args.type(input).str());
  }
}

Dim bytes_of(const Value& value) {
  return num_elements(value.shape()) * Dim(static_cast<int64_t>(dtype_size(value.type().dtype)));
}

}  // namespace atb
