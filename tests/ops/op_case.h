// SPDX-License-Identifier: Apache-2.0
// One operator call with all its operands: what the tests, the table of cases and the micro benchmark are made of.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/constant.h"
#include "ir/builder.h"
#include "ir/interpreter.h"
#include "ir/kernel.h"
#include "ir/op.h"

namespace atb::testing {

class KvFixture;

// One input of the call: a constant, a tensor of the step, a state (neither), or absent.
struct Operand {
  std::optional<RefTensor<float>> tensor;
  ConstantRef constant;
  bool state = false;
  bool absent() const { return !tensor && constant == nullptr && !state; }
};

// Operands in f32.
Operand activation(std::vector<int64_t> shape, std::vector<float> values);
// i32 unless said; bools are 0 and 1.
Operand integers(std::vector<int64_t> shape, std::vector<int64_t> values, DType dtype = DType::kI32);
Operand constant(ConstantRef handle);
// A constant in f32, or encoded (the encoding must have an encoder; the oracle sees the decoded values).
Operand weight(std::vector<int64_t> shape, const std::vector<float>& values, const Encoding* encoding = nullptr);
// A weight by the name of its dtype or encoding: "f32", "f16", "bf16", "q4_1".
Operand weight_as(const std::string& format, std::vector<int64_t> shape, const std::vector<float>& values);
Operand state();
Operand no_operand();

// Values in [-scale, scale], the same for a seed on every machine.
std::vector<float> random_values(int64_t count, uint32_t seed, float scale = 1.0f);
int64_t count_of(const std::vector<int64_t>& shape);

struct OpCase {
  std::string op;
  std::vector<Operand> inputs;
  Attrs attrs = {};
  Precision precision = Precision::kExact;
  size_t misalign = 0;  // bytes by which activations and outputs miss 64-byte alignment; a multiple of the element
  const KvLayout* kv = nullptr;  // for operators with state: layout and the ragged step
  std::vector<SequenceStep> sequences =
      {};  // their blocks are the caller's; every split of the units writes them again
  std::vector<RefSequence> ref_sequences = {};  // the same step for the interpreter
  bool with_reference = true;                   // false: only the kernel runs
  // Instead of the three above: a cache with its contents, put back before every run, compared after it.
  std::shared_ptr<KvFixture> cache = nullptr;
};

// The one-node graph of a case: inputs "in0", "in1", ... (constants keep their names), outputs those of the node.
Node* build_op_graph(Graph& graph, const OpCase& test);

// The kernel of a node of that graph; null where the operator has none for it.
std::unique_ptr<Kernel> make_case_kernel(const OpCase& test, const Node& node, PackedStore& store);

// The call by plain loops, in f32 or f64.
template <class T>
std::vector<RefTensor<T>> interpret_case(const Graph& graph, const OpCase& test);
extern template std::vector<RefTensor<float>> interpret_case(const Graph&, const OpCase&);
extern template std::vector<RefTensor<double>> interpret_case(const Graph&, const OpCase&);

// Largest |a - b| over the largest |b|: an error relative to the scale of the result. NaN where either has NaN.
double max_error(const RefTensor<float>& a, const RefTensor<double>& b);
bool same_bits(const RefTensor<float>& a, const RefTensor<float>& b);

}  // namespace atb::testing
