// SPDX-License-Identifier: Apache-2.0
// QKV, the merge of q, k and v of an attention without rotary: numbers, and near misses.
#include "graph_testing.h"
#include "ir/text.h"

namespace atb {
namespace {

using test::apply;
using test::count;
using test::expect_fused;
using test::expect_miss;
using test::find;

// What of an attention over projections differs from one that fuses.
struct Form {
  std::string q_bias = ", @bq";
  std::string k_bias = ", @bk";
  std::string v_bias = ", @bv";
  std::string v_x = "%x";
  std::string v_weight = "@wv";
  std::string v_type = "f32";
  std::string q_bent = "%q";    // what is split into heads of q
  std::string mask = "";        // of the attention
  std::string before = "";      // lines after the projections
  std::string returned = "%o";  // results
};

std::unique_ptr<Graph> attention_of(const Form& form) {
  const std::string text = R"(graph @attention(%x: f32[B, T, 12], %y: f32[B, T, 12], %m: f32[B, 1, T, T]) {
  symbols B in [1, 64], T in [1, 512]
  const @wq : f32[32, 12]
  const @wk : f32[16, 12]
  const @wv : )" + form.v_type +
                           R"([16, 12]
  const @bq : f32[32]
  const @bk : f32[16]
  const @bv : f32[16]
  %q = linear(%x, @wq)" + form.q_bias +
                           R"() {layer=3} : f32[B, T, 32]
  %k = linear(%x, @wk)" + form.k_bias +
                           R"() {layer=3} : f32[B, T, 16]
  %v = linear()" + form.v_x +
                           ", " + form.v_weight + form.v_bias + R"() {layer=3} : f32[B, T, 16]
)" + form.before + R"(  %qh = reshape()" +
                           form.q_bent + R"() {layer=3, shape=[B, T, 4, 8]} : f32[B, T, 4, 8]
  %kh = reshape(%k) {layer=3, shape=[B, T, 2, 8]} : f32[B, T, 2, 8]
  %vh = reshape(%v) {layer=3, shape=[B, T, 2, 8]} : f32[B, T, 2, 8]
  %o = flash_attention(%qh, %kh, %vh)" +
                           form.mask + R"() {layer=3, scale=0.25, causal=true} : f32[B, T, 4, 8]
  return )" + form.returned +
                           "\n}\n";
  auto graph = parse_graph(text);
  test::fill_constants(*graph);
  return graph;
}

// Near misses of a rare pattern that fail in structure leave no line in the report.
void expect_left(std::unique_ptr<Graph> graph) {
  const MatchReport report = apply(*graph, "QKV");
  EXPECT_TRUE(report.patterns.empty());
  EXPECT_EQ(count(*graph, "merged_matmul"), 0);
}

TEST(Qkv, MakesOneProductOfThreeProjections) {
  auto graph = attention_of({});
  const auto before = graph->clone();
  const MatchReport report = apply(*graph, "QKV");
  EXPECT_EQ(report.patterns[0].layers, (std::set<int>{3}));
  EXPECT_EQ(count(*graph, "linear"), 0);
  EXPECT_EQ(count(*graph, "flash_attention"), 1);
  const Node* merged = find(*graph, "q");
  ASSERT_TRUE(merged->is("merged_matmul"));
  EXPECT_EQ(merged->attrs().get<std::vector<int64_t>>("splits"), (std::vector<int64_t>{32, 16, 16}));
  EXPECT_EQ(merged->output(2)->name(), "v");
  test::expect_same_numbers(*before, *graph);
}

TEST(Qkv, TakesEveryMixOfBiases) {
  for (int bits = 0; bits < 8; ++bits) {
    expect_fused(attention_of({.q_bias = (bits & 1) != 0 ? ", @bq" : "",
                               .k_bias = (bits & 2) != 0 ? ", @bk" : "",
                               .v_bias = (bits & 4) != 0 ? ", @bv" : ""}),
                 "QKV", 1);
  }
}

TEST(Qkv, TakesMasksNormsAndReadersElsewhere) {
  expect_fused(attention_of({.mask = ", %m"}), "QKV", 1);
  expect_fused(attention_of({.returned = "%o, %q, %vh"}), "QKV", 1);
  expect_fused(attention_of({.q_bent = "%n", .before = "  %n = rms_norm(%q, @bq) {eps=1e-5} : f32[B, T, 32]\n"}), "QKV",
               1);
  expect_fused(attention_of({.before = "  %other = linear(%x, @wq) : f32[B, T, 32]\n", .returned = "%o, %v"}), "QKV",
               0);  // @wq has two readers
}

TEST(Qkv, LeavesProjectionsOfTwoStreams) { expect_left(attention_of({.v_x = "%y"})); }

TEST(Qkv, LeavesWhatIsComputedInBetween) {
  expect_left(attention_of({.q_bent = "%n", .before = "  %n = silu(%q) : f32[B, T, 32]\n"}));
}

TEST(Qkv, LeavesWeightsOfTwoTypesAndSharedWeights) {
  auto types = attention_of({.v_type = "f16"});
  expect_miss(*types, "QKV",
              "Pattern QKV not matched at layer 3: v: weights of one type, found @wv f16[], needs f32[] as @wq");
  auto shared = attention_of({.v_weight = "@wk"});
  expect_miss(*shared, "QKV",
              "Pattern QKV not matched at layer 3: k: weights not shared, found @wk also read by v, needs one reader");
}

// k and v of one product stay one product.
TEST(Qkv, LeavesKeysThatAreTheValues) {
  auto graph = parse_graph(R"(graph @tied(%x: f32[B, T, 12]) {
  symbols B in [1, 64], T in [1, 512]
  const @wq : f32[32, 12]
  const @wk : f32[16, 12]
  %q = linear(%x, @wq) : f32[B, T, 32]
  %k = linear(%x, @wk) : f32[B, T, 16]
  %qh = reshape(%q) {shape=[B, T, 4, 8]} : f32[B, T, 4, 8]
  %kh = reshape(%k) {shape=[B, T, 2, 8]} : f32[B, T, 2, 8]
  %o = flash_attention(%qh, %kh, %kh) {scale=0.25} : f32[B, T, 4, 8]
  return %o
}
)");
  expect_left(std::move(graph));
}

}  // namespace
}  // namespace atb
