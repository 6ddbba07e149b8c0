// SPDX-License-Identifier: Apache-2.0
// B19: operands that are expanded (stride 0), slices of one packed buffer, or transposed give the bits of their
// contiguous copies, for every operator that a plan executes.
#include <gtest/gtest.h>

#include <set>

#include "faults/strided_rig.h"

namespace atb::testing {
namespace {

Operand random_tensor(std::vector<int64_t> shape, uint32_t seed) {
  int64_t size = 1;
  for (const int64_t extent : shape) size *= extent;
  return activation(std::move(shape), random_values(size, seed));
}

Operand random_integers(std::vector<int64_t> shape, int64_t below, DType dtype = DType::kI32) {
  int64_t size = 1;
  for (const int64_t extent : shape) size *= extent;
  std::vector<int64_t> values;
  for (int64_t i = 0; i < size; ++i) values.push_back((i * 7 + 3) % below);
  return integers(std::move(shape), std::move(values), dtype);
}

// Functions of one and two operands, comparisons, connectives, cast.
void add_elementwise_cases(std::vector<OpCase>& list) {
  for (const char* op : {"neg", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tanh", "sigmoid",
                         "erf", "silu", "relu", "gelu"}) {
    list.push_back({.op = op, .inputs = {random_tensor({3, 5, 33}, 1)}});
  }
  for (const char* op : {"add", "sub", "mul", "div", "less_equal", "less", "equal", "pow", "maximum", "minimum",
                         "floor_divide", "remainder"}) {
    list.push_back({.op = op, .inputs = {random_tensor({3, 5, 33}, 1), random_tensor({3, 5, 33}, 2)}});
    list.push_back({.op = op, .inputs = {random_tensor({3, 5, 33}, 1), random_tensor({5, 1}, 2)}});
  }
  list.push_back({.op = "add", .inputs = {random_integers({4, 9}, 50), random_integers({4, 9}, 30)}});
  for (const char* op : {"logical_and", "logical_or"}) {
    list.push_back(
        {.op = op, .inputs = {random_integers({3, 5, 7}, 2, DType::kBool), random_integers({5, 7}, 2, DType::kBool)}});
  }
  list.push_back({.op = "logical_not", .inputs = {random_integers({3, 5, 7}, 2, DType::kBool)}});
  list.push_back({.op = "cast", .inputs = {random_tensor({3, 5, 33}, 1)}, .attrs = {{"dtype", std::string("bf16")}}});
  list.push_back(
      {.op = "where",
       .inputs = {random_integers({3, 5, 7}, 2, DType::kBool), random_tensor({5, 7}, 1), random_tensor({3, 5, 7}, 2)}});
}

// Copies and reductions.
void add_shape_cases(std::vector<OpCase>& list) {
  for (const int64_t axis : {0, 1, 2}) {
    const Operand x = random_tensor({3, 5, 7}, 1);
    list.push_back({.op = "concat", .inputs = {x, random_tensor({3, 5, 7}, 2)}, .attrs = {{"axis", axis}}});
    list.push_back({.op = "slice",
                    .inputs = {x},
                    .attrs = {{"axis", axis}, {"bounds", Shape{Dim(1), Dim(3)}}, {"step", int64_t{1 + axis}}}});
    list.push_back({.op = "cumsum", .inputs = {x}, .attrs = {{"axis", axis}}});
    for (const char* op : {"sum", "mean", "max"}) {
      list.push_back({.op = op, .inputs = {x}, .attrs = {{"axes", std::vector<int64_t>{axis}}}});
    }
  }
  list.push_back({.op = "broadcast",
                  .inputs = {random_tensor({5, 1, 7}, 1)},
                  .attrs = {{"shape", Shape{Dim(2), Dim(5), Dim(3), Dim(7)}}}});
  list.push_back(
      {.op = "take", .inputs = {random_tensor({4, 6, 9}, 1), random_integers({3, 1}, 4), random_integers({3, 5}, 6)}});
}

// The steps of attention: keys in panels of 16.
void add_attention_steps(std::vector<OpCase>& list) {
  const Operand q = random_tensor({2, 9, 4, 16}, 1);
  list.push_back({.op = "qkv_load", .inputs = {q, random_tensor({2, 40, 2, 16}, 2), random_tensor({2, 40, 2, 16}, 3)}});
  list.push_back({.op = "block_attention",
                  .inputs = {q, random_tensor({2, 2, 3, 16, 16}, 2), random_tensor({2, 2, 40, 16}, 3),
                             random_tensor({2, 4, 9, 40}, 4)},
                  .attrs = {{"scale", 0.25}}});
  const Operand max = random_tensor({3, 2, 9, 4}, 1);
  const Operand sum = random_tensor({3, 2, 9, 4}, 2);
  list.push_back({.op = "online_softmax", .inputs = {max, sum}});
  list.push_back({.op = "output_merge", .inputs = {random_tensor({3, 2, 9, 4, 16}, 3), max, sum}});
}

// Every operator with a kernel or a reference, but for views, iota (no input) and those with state (tested below).
std::vector<OpCase> cases() {
  std::vector<OpCase> list;
  add_elementwise_cases(list);
  add_shape_cases(list);
  add_attention_steps(list);
  list.push_back({.op = "softmax", .inputs = {random_tensor({3, 5, 33}, 1)}});
  list.push_back({.op = "embedding", .inputs = {random_integers({3, 5}, 11), weight({11, 9}, random_values(99, 2))}});
  list.push_back(
      {.op = "embedding", .inputs = {random_integers({3, 5}, 11, DType::kI64), weight({11, 9}, random_values(99, 2))}});
  list.push_back({.op = "gather_rows", .inputs = {random_tensor({6, 33}, 1), random_integers({4}, 6)}});
  list.push_back({.op = "rms_norm",
                  .inputs = {random_tensor({3, 5, 33}, 1), weight({33}, random_values(33, 2))},
                  .attrs = {{"eps", 1e-5}}});
  list.push_back({.op = "layer_norm",
                  .inputs = {random_tensor({3, 5, 33}, 1), random_tensor({33}, 2), random_tensor({33}, 3)},
                  .attrs = {{"eps", 1e-5}}});
  list.push_back({.op = "fused_add_norm",
                  .inputs = {random_tensor({3, 5, 33}, 1), random_tensor({3, 5, 33}, 2), random_tensor({33}, 3)},
                  .attrs = {{"eps", 1e-5}, {"kind", std::string("rms")}}});
  // Few rows, and many in several blocks; quantized activations.
  for (const std::vector<int64_t>& x : {std::vector<int64_t>{3, 64}, {2, 3, 33, 64}, {300, 64}}) {
    list.push_back({.op = "linear", .inputs = {random_tensor(x, 1), weight({40, 64}, random_values(2560, 2))}});
    list.push_back({.op = "linear",
                    .inputs = {random_tensor(x, 1), weight({40, 64}, random_values(2560, 2), find_encoding("q8_0"))},
                    .precision = Precision::kFast});
  }
  list.push_back({.op = "merged_matmul",
                  .inputs = {random_tensor({3, 5, 64}, 1), weight({40, 64}, random_values(2560, 2))},
                  .attrs = {{"splits", std::vector<int64_t>{24, 16}}}});
  list.push_back({.op = "fused_linear",
                  .inputs = {random_tensor({3, 5, 64}, 1), weight({40, 64}, random_values(2560, 2)), no_operand(),
                             weight({64}, random_values(64, 3)), no_operand(), random_tensor({3, 5, 40}, 4)},
                  .attrs = {{"splits", std::vector<int64_t>{40}}, {"norm", std::string("layer")}, {"eps", 1e-5}}});
  list.push_back({.op = "fused_gate_up",
                  .inputs = {random_tensor({3, 5, 64}, 1), weight({40, 64}, random_values(2560, 2))},
                  .attrs = {{"activation", std::string("silu")}}});
  list.push_back({.op = "matmul", .inputs = {random_tensor({3, 5, 17}, 1), random_tensor({3, 17, 6}, 2)}});
  list.push_back({.op = "rotary_table", .inputs = {random_integers({3, 5}, 90), random_tensor({8}, 1)}});
  list.push_back({.op = "rotary",
                  .inputs = {random_tensor({2, 5, 3, 16}, 1), random_tensor({5, 8}, 2), random_tensor({5, 8}, 3)}});
  list.push_back({.op = "rotary_embedding",
                  .inputs = {random_tensor({2, 5, 4, 16}, 1), random_tensor({2, 5, 2, 16}, 2),
                             random_tensor({2, 5, 8}, 3), random_tensor({2, 5, 8}, 4)},
                  .attrs = {{"interleaved", true}}});
  list.push_back({.op = "flash_attention",
                  .inputs = {random_tensor({2, 20, 4, 16}, 1), random_tensor({2, 150, 2, 16}, 2),
                             random_tensor({2, 150, 2, 16}, 3), random_tensor({2, 4, 20, 150}, 4)},
                  .attrs = {{"scale", 0.25}}});
  return list;
}

TEST(B19StridedOperands, EveryOperatorGivesTheBitsOfContiguousOnes) {
  int index = 0;
  for (const OpCase& test : cases()) {
    const auto dense = run_in_order(test, MemoryOrder::kDense);
    for (const MemoryOrder order : kStridedOrders) {
      SCOPED_TRACE(test.op + ", case " + std::to_string(index) + ", order " + std::to_string(static_cast<int>(order)));
      EXPECT_EQ(run_in_order(test, order), dense);
    }
    ++index;
  }
}

TEST(B19StridedOperands, TheTableKnowsEveryOperator) {
  std::set<std::string> tested{"kv_append", "rotary_kv_append", "flash_attention_kv",  // below
                               "iota",      "reshape",          "transpose",
                               "external"};  // its body's operators run
  for (const OpCase& test : cases()) tested.insert(test.op);
  for (const OpDef* op : OpRegistry::instance().all()) {
    EXPECT_TRUE(tested.contains(op->name)) << op->name << " has no case with strided operands";
  }
}

// Values that repeat along an axis, then passed once with stride 0.
TEST(B19StridedOperands, ExpandedAxesGiveTheBitsOfCopies) {
  int index = 0;
  for (OpCase test : cases()) {
    std::vector<std::unique_ptr<LaidOutTensor>> tensors;
    std::vector<TensorView> views;
    for (Operand& operand : test.inputs) {
      if (!operand.tensor) continue;
      RefTensor<float>& tensor = *operand.tensor;
      // The axis before the last where there is one: heads of keys and values, rows of matrices.
      const size_t axis = tensor.shape.size() >= 2 ? tensor.shape.size() - 2 : 0;
      int64_t inner = 1;
      for (size_t i = axis + 1; i < tensor.shape.size(); ++i) inner *= tensor.shape[i];
      for (int64_t n = 0; n < tensor.size(); ++n) {
        const int64_t from = n - n / inner % tensor.shape[axis] * inner;
        if (is_float(tensor.dtype)) {
          tensor.f[static_cast<size_t>(n)] = tensor.f[static_cast<size_t>(from)];
        } else {
          tensor.i[static_cast<size_t>(n)] = tensor.i[static_cast<size_t>(from)];
        }
      }
      std::vector<int64_t> strides = strides_of(tensor.shape, MemoryOrder::kDense);
      strides[axis] = 0;
      tensors.push_back(std::make_unique<LaidOutTensor>(tensor, strides));
      views.push_back(tensors.back()->view());
    }
    EXPECT_EQ(run_on_views(test, views), run_in_order(test, MemoryOrder::kDense)) << test.op << ", case " << index;
    ++index;
  }
}

// The rows of the fault: keys and values of 4 heads that are one head expanded, or slices of a packed QKV.
class AttentionB19 : public ::testing::TestWithParam<std::tuple<int64_t, DType, bool>> {
 protected:
  static constexpr int64_t kHeads = 4, kDim = 16, kTokens = 7;

  Operand tensor(std::vector<int64_t> shape, uint32_t seed) const {
    Operand operand = random_tensor(std::move(shape), seed);
    operand.tensor->dtype = std::get<1>(GetParam());
    return operand;
  }
  OpCase attention(Operand q, Operand k, Operand v) const {
    const auto [keys, dtype, masked] = GetParam();
    OpCase test{.op = "flash_attention",
                .inputs = {std::move(q), std::move(k), std::move(v)},
                .attrs = {{"scale", 0.25}, {"causal", !masked}}};
    if (!masked) return test;
    Operand mask = tensor({1, 1, test.inputs[0].tensor->shape[1], keys}, 9);
    for (size_t i = 0; i < mask.tensor->f.size(); i += 5) mask.tensor->f[i] = -std::numeric_limits<float>::infinity();
    test.inputs.push_back(mask);
    return test;
  }
  // Runs with the given strides of k and v, everything else dense.
  static std::vector<std::vector<std::byte>> run(const OpCase& test, const std::vector<TensorView>& kv) {
    std::vector<std::unique_ptr<LaidOutTensor>> tensors;
    std::vector<TensorView> views;
    for (const Operand& operand : test.inputs) {
      tensors.push_back(
          std::make_unique<LaidOutTensor>(*operand.tensor, strides_of(operand.tensor->shape, MemoryOrder::kDense)));
      views.push_back(tensors.back()->view());
    }
    std::copy(kv.begin(), kv.end(), views.begin() + 1);
    return run_on_views(test, views);
  }
};

TEST_P(AttentionB19, OneHeadExpanded) {
  const int64_t keys = std::get<0>(GetParam());
  OpCase test = attention(tensor({1, kTokens, kHeads, kDim}, 1), tensor({1, keys, kHeads, kDim}, 2),
                          tensor({1, keys, kHeads, kDim}, 3));
  std::vector<std::unique_ptr<LaidOutTensor>> expanded;
  for (size_t i = 1; i < 3; ++i) {
    RefTensor<float>& copies = *test.inputs[i].tensor;
    for (size_t n = 0; n < copies.f.size(); ++n)
      copies.f[n] = copies.f[n / (kHeads * kDim) * (kHeads * kDim) + n % kDim];
    expanded.push_back(std::make_unique<LaidOutTensor>(copies, std::vector<int64_t>{keys * kDim, kDim, 0, 1}));
  }
  EXPECT_EQ(run(test, {expanded[0]->view(), expanded[1]->view()}), run_in_order(test, MemoryOrder::kDense));
}

TEST_P(AttentionB19, SlicesOfAPackedQkv) {
  const int64_t keys = std::get<0>(GetParam());
  const RefTensor<float> packed = *tensor({1, keys, 3 * kHeads, kDim}, 4).tensor;
  const LaidOutTensor memory(packed, strides_of(packed.shape, MemoryOrder::kDense));
  std::vector<TensorView> views;
  std::vector<Operand> copies;
  for (int64_t part = 0; part < 3; ++part) {
    TensorView view = memory.view();
    view.shape[2] = kHeads;
    view.data += static_cast<size_t>(part * kHeads * kDim) * dtype_size(packed.dtype);
    views.push_back(view);
    Operand copy = tensor({1, keys, kHeads, kDim}, 0);
    for (size_t n = 0; n < copy.tensor->f.size(); ++n) {
      const size_t width = kHeads * kDim;
      copy.tensor->f[n] = packed.f[n / width * 3 * width + static_cast<size_t>(part) * width + n % width];
    }
    copies.push_back(std::move(copy));
  }
  const OpCase test = attention(copies[0], copies[1], copies[2]);
  std::unique_ptr<LaidOutTensor> mask;
  if (test.inputs.size() == 4) {
    const RefTensor<float>& values = *test.inputs[3].tensor;
    mask = std::make_unique<LaidOutTensor>(values, strides_of(values.shape, MemoryOrder::kDense));
    views.push_back(mask->view());
  }
  EXPECT_EQ(run_on_views(test, views), run_in_order(test, MemoryOrder::kDense));
}

INSTANTIATE_TEST_SUITE_P(Lengths, AttentionB19,
                         ::testing::Combine(::testing::Values(31, 32, 33, 65),
                                            ::testing::Values(DType::kF32, DType::kBF16), ::testing::Bool()));

// Keys and values that go into the cache: rows of a packed buffer, and one head for all.
TEST(B19StridedOperands, CachedOperatorsTakeSlicesAndExpandedHeads) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t rows : {31, 32, 33, 65}) {
      const KvLayout layout{dtype, 1, 2, 16, 32};
      const size_t blocks = static_cast<size_t>((rows + 31) / 32);
      const auto table = [&](uint32_t seed) { return random_tensor({rows, 8}, seed); };
      const auto heads = [&](int64_t count, uint32_t seed) { return random_tensor({rows, count, 16}, seed); };
      std::vector<OpCase> appends = {
          {.op = "kv_append", .inputs = {heads(2, 1), heads(2, 2), state()}, .attrs = {{"slot", int64_t{0}}}},
          {.op = "rotary_kv_append",
           .inputs = {heads(4, 3), heads(2, 1), heads(2, 2), table(5), table(6), state()},
           .attrs = {{"slot", int64_t{0}}}}};
      OpCase attend{.op = "flash_attention_kv",
                    .inputs = {heads(4, 7), state()},
                    .attrs = {{"slot", int64_t{0}}, {"scale", 0.25}, {"kv_heads", int64_t{2}}}};
      for (OpCase& append : appends) {
        std::vector<std::vector<std::byte>> dense_result, dense_cache;
        for (int order = 0; order < 5; ++order) {
          std::vector<std::vector<std::byte>> cache(blocks, std::vector<std::byte>(layout.block_bytes()));
          std::vector<std::byte*> pointers;
          for (auto& block : cache) pointers.push_back(block.data());
          append.kv = attend.kv = &layout;
          append.sequences = attend.sequences = {{0, rows, 0, pointers.data()}};
          const auto memory_order = static_cast<MemoryOrder>(order);
          std::vector<std::vector<std::byte>> result = run_in_order(append, memory_order);
          for (auto& output : run_in_order(attend, memory_order)) result.push_back(output);
          if (order == 0) {
            dense_result = result;
            dense_cache = cache;
          }
          EXPECT_EQ(result, dense_result) << append.op << ", " << rows << " rows, order " << order;
          EXPECT_EQ(cache, dense_cache) << append.op << ", " << rows << " rows, order " << order;
        }
      }
    }
  }
}

// Inside a graph a transpose is a view: what reads it must see the moved axes, also the last one.
TEST(B19StridedOperands, TransposedValuesInsideAGraph) {
  const std::vector<std::pair<std::string, std::vector<int64_t>>> perms = {{"swap", {0, 2, 1}}, {"lead", {1, 0, 2}}};
  for (const auto& [name, perm] : perms) {
    for (const char* op : {"linear", "rms_norm", "softmax", "silu"}) {
      auto graph = std::make_unique<Graph>();
      Builder b(*graph);
      const int64_t width = perm[2] == 2 ? 32 : 6;
      Value* x = b("silu", {graph->add_input("x", {DType::kF32, {Dim(4), Dim(6), Dim(32)}})});
      Value* moved = b("transpose", {x}, {{"perm", perm}});
      std::vector<Value*> inputs{moved};
      Attrs attrs;
      const std::string kind = op;
      if (kind == "linear") {
        inputs.push_back(graph->add_constant(Constant::from_f32("w", {5, width}, random_values(5 * width, 2))));
      } else if (kind == "rms_norm") {
        inputs.push_back(graph->add_constant(Constant::from_f32("w", {width}, random_values(width, 2))));
        attrs = {{"eps", 1e-5}};
      }
      graph->set_outputs({b(op, inputs, attrs)});
      const RefTensor<float> input{DType::kF32, {4, 6, 32}, random_values(4 * 6 * 32, 1), {}, nullptr};
      const std::vector<RefTensor<float>> expected = interpret<float>(*graph, {{"x", input}});

      PackedStore store;
      const Program program(std::move(graph), find_device("cpu"), store, {});
      const Plan plan(program, {});
      std::vector<float> in = input.f, out(expected[0].f.size());
      std::vector<std::byte> arena(plan.arena_bytes());
      Frame frame = plan.resolve({}, std::vector{reinterpret_cast<std::byte*>(in.data())},
                                 {reinterpret_cast<std::byte*>(out.data())}, arena.data());
      ThreadTeam team(2);
      Executor(team).run(program, frame, {});
      for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[0].f[i], 1e-5) << op << " after " << name;
    }
  }
}

TEST(B19StridedOperands, AReshapeNeedsContiguousInputsAndSaysSo) {
  auto graph = std::make_unique<Graph>();
  Builder b(*graph);
  Value* x = graph->add_input("x", {DType::kF32, {Dim(4), Dim(6)}});
  Value* y = graph->add_input("y", {DType::kF32, {Dim(8), Dim(3)}});
  graph->set_outputs({b("add", {b.reshape(x, {Dim(8), Dim(3)}), y})});
  PackedStore store;
  const Program program(std::move(graph), find_device("cpu"), store, {.strided_inputs = true});
  const Plan plan(program, {});
  EXPECT_TRUE(plan.needs_contiguous(0));
  EXPECT_FALSE(plan.needs_contiguous(1));
  const RefTensor<float> values{DType::kF32, {4, 6}, random_values(24, 1), {}, nullptr};
  const RefTensor<float> others{DType::kF32, {8, 3}, random_values(24, 2), {}, nullptr};
  const LaidOutTensor dense(values, {6, 1}), strided(values, {1, 4}), other(others, {1, 8});
  std::vector<std::byte> out(24 * sizeof(float)), arena(plan.arena_bytes());
  EXPECT_NO_THROW(plan.resolve({}, {dense.view(), other.view()}, {out.data()}, arena.data()));
  EXPECT_THROW(plan.resolve({}, {strided.view(), other.view()}, {out.data()}, arena.data()), Error);
  EXPECT_THROW(plan.resolve({}, {other.view(), other.view()}, {out.data()}, arena.data()), Error);
}

}  // namespace
}  // namespace atb::testing
