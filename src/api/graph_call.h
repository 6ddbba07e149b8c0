// SPDX-License-Identifier: Apache-2.0
// A call of a GraphOp as the block builder takes it: its arrays, and the form that decides which graph serves it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "atb/graph_op.h"
#include "blocks/block.h"
#include "core/constant.h"
#include "core/tensor.h"

namespace atb {

DType dtype_of(ElementType type);
// kUnsupported for a dtype that applications have not.
ElementType element_type(DType dtype);

// The values, copied. kInvalidArgument for a shape that no array has.
ConstantRef constant_of(const std::string& name, const ArrayView& array);

// Arguments that are there, in the order of a block's inputs.
std::vector<std::pair<std::string, const ArrayView*>> given_inputs(const GraphCall& call);
// The same as tensors; kInvalidArgument for a shape that no array has.
std::vector<TensorView> views_of(const GraphCall& call);

// The form of a call over B, T and S. `parameters`: their dtype; `past`: tokens that its cache holds, -1 for no cache.
// kInvalidArgument for ranks that do not fit, and for a mask of another number of keys than cache and call have.
BlockCall form_of(const GraphCall& call, DType parameters, int64_t past);

// What two calls that one graph serves have in common, as text.
std::string key_of(const BlockCall& form);

}  // namespace atb
