// SPDX-License-Identifier: Apache-2.0
// embedding and gather_rows beyond the table of cases: tables of halves, row maps, and indices outside.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "ops/kernel_harness.h"

namespace atb::testing {
namespace {

constexpr int64_t kRows = 11;
constexpr int64_t kWidth = 64;

Operand table(const Encoding* encoding) { return weight({kRows, kWidth}, random_values(kRows * kWidth, 7), encoding); }

// Decoding is exact, so the kernel's rows are the oracle's.
void expect_exact(const Operand& handle) {
  const OpRun run = run_op({.op = "embedding", .inputs = {integers({2, 3}, {10, 0, 3, 3, 9, 1}), handle}});
  ASSERT_EQ(run.kernel.size(), 1u);
  EXPECT_EQ(run.kernel[0].shape, (std::vector<int64_t>{2, 3, kWidth}));
  EXPECT_TRUE(same_bits(run.kernel[0], run.f32[0])) << run.variant;
}

// The kernel reports an index outside and leaves rows of zeros; the reference throws. Returns the rows.
std::vector<float> expect_index_fault(const OpCase& test) {
  EXPECT_THROW(run_op(test), Error);
  Graph graph;
  const Node* node = build_op_graph(graph, test);
  PackedStore store;
  const std::unique_ptr<Kernel> kernel = make_case_kernel(test, *node, store);
  KernelRun run(test, *node, *kernel);
  const KernelResult result = *run.run({});
  EXPECT_EQ(run.faults().size(), 1u);
  for (const std::string& fault : run.faults()) EXPECT_NE(fault.find("set the fault flag"), std::string::npos) << fault;
  return result.outputs[0].f;
}

TEST(Embedding, HalfTables) {
  const std::vector<float> values = random_values(kRows * kWidth, 9);
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    std::vector<std::byte> bytes(values.size() * 2);
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t bits = dtype == DType::kF16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
      std::memcpy(bytes.data() + 2 * i, &bits, 2);
    }
    const Operand handle = constant(
        Constant::from_storage("table", dtype, nullptr, {kRows, kWidth}, storage_from_bytes(std::move(bytes)), 0));
    const OpRun run = run_op({.op = "embedding", .inputs = {integers({1}, {4}), handle}});
    EXPECT_TRUE(run.kernel.empty());  // no kernel writes halves
    EXPECT_EQ(run.f32[0].dtype, dtype);
    EXPECT_EQ(run.f32[0].f[5], handle.constant->to_f32()[4 * kWidth + 5]);
  }
}

TEST(Embedding, PermutedAndConcatenatedTables) {
  const ConstantRef plain = table(nullptr).constant;
  std::vector<int32_t> reversed;
  for (int32_t i = static_cast<int32_t>(kRows); i-- > 0;) reversed.push_back(i);
  const ConstantRef both = Constant::concat_rows("both", {Constant::permute_rows(plain, reversed), plain});
  expect_exact(constant(both));
  const OpRun run = run_op({.op = "embedding", .inputs = {integers({2}, {0, 21}), constant(both)}});
  const std::vector<float> last(run.kernel[0].f.begin(), run.kernel[0].f.begin() + kWidth);
  const std::vector<float> again(run.kernel[0].f.begin() + kWidth, run.kernel[0].f.end());
  EXPECT_EQ(last, again);
}

TEST(Embedding, IdsOutsideNeverReadOutside) {
  const OpCase test{.op = "embedding", .inputs = {integers({4}, {-1, kRows, 2147483647, 0}), table(nullptr)}};
  const std::vector<float> rows = expect_index_fault(test);
  EXPECT_EQ(std::count(rows.begin(), rows.begin() + 3 * kWidth, 0.0f), 3 * kWidth);
}

TEST(Embedding, NoIds) {
  const OpRun run = run_op({.op = "embedding", .inputs = {integers({0}, {}), table(nullptr)}});
  EXPECT_EQ(run.kernel[0].shape, (std::vector<int64_t>{0, kWidth}));
}

TEST(Embedding, AbsentTablesAreRefusedWhenTheKernelIsMade) {
  const Operand handle = constant(Constant::absent("table", DType::kF32, nullptr, {4, 4}));
  EXPECT_THROW(run_op({.op = "embedding", .inputs = {integers({1}, {0}), handle}, .with_reference = false}), Error);
}

TEST(GatherRows, PicksRows) {
  const Operand x = activation({3, 2}, {0, 1, 10, 11, 20, 21});
  const OpRun run = run_op({.op = "gather_rows", .inputs = {x, integers({4}, {2, 0, 2, 1})}});
  EXPECT_EQ(run.kernel[0].f, (std::vector<float>{20, 21, 0, 1, 20, 21, 10, 11}));
  EXPECT_TRUE(same_bits(run.kernel[0], run.f32[0]));
  EXPECT_TRUE(run_op({.op = "gather_rows", .inputs = {x, integers({0}, {})}}).kernel[0].f.empty());
  const std::vector<float> row = expect_index_fault({.op = "gather_rows", .inputs = {x, integers({1}, {3})}});
  EXPECT_EQ(row, (std::vector<float>{0, 0}));
}

}  // namespace
}  // namespace atb::testing
