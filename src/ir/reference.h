// SPDX-License-Identifier: Apache-2.0
// Dense tensors and calls of the reference interpreter (plain loops in f32 or f64): the oracle of every test.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "core/dim.h"
#include "core/dtype.h"

namespace atb {

class Node;

// Keys and values by (slot, sequence): [tokens][kv_heads * head_dim], appended by the reference KV operators.
template <class T>
struct RefKvState {
  struct Entry {
    std::vector<T> k, v;
  };
  std::map<std::pair<int64_t, int64_t>, Entry> entries;
};

// Row-major. Floats of every dtype live in `f` (as T), integers and bools in `i`, a state in `state`.
template <class T>
struct RefTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<T> f;
  std::vector<int64_t> i;
  std::shared_ptr<RefKvState<T>> state;
  int64_t size() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
};

// One sequence of a ragged step: its new rows [row_begin, row_begin + rows) at positions past, past + 1, ....
struct RefSequence {
  int64_t id = 0;
  int64_t row_begin = 0;
  int64_t rows = 0;
  int64_t past = 0;
};

template <class T>
struct RefCall {
  const Node& node;
  std::vector<const RefTensor<T>*> inputs;  // null for absent optional ones
  std::vector<RefTensor<T>*> outputs;       // dtype, shape and storage are set; state outputs share the input's state
  const std::vector<RefSequence>& sequences;
  const Bindings& bindings;  // for attributes with symbols
};

struct ReferenceKernel {
  std::function<void(RefCall<float>&)> f32;
  std::function<void(RefCall<double>&)> f64;
  explicit operator bool() const { return static_cast<bool>(f32); }
};

// Makes both from one generic lambda: reference_kernel([](auto& call) { ... }).
template <class F>
ReferenceKernel reference_kernel(F f) {
  return {[f](RefCall<float>& call) { f(call); }, [f](RefCall<double>& call) { f(call); }};
}

}  // namespace atb
