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

void require_state(const InferArgs& args, size_t input) {
  if (args.type(input).dtype != DType::kState) {
    args.fail(args.op.inputs[input].name + " must be a state, not " + args.type(input).str());
  }
}

Dim bytes_of(const Value& value) {
  return num_elements(value.shape()) * Dim(static_cast<int64_t>(dtype_size(value.type().dtype)));
}

}  // namespace atb
