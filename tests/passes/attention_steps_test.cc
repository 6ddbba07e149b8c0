// SPDX-License-Identifier: Apache-2.0
// Patterns that put the steps of attention together in another way: numbers, and near misses with their reasons.
#include "graph_testing.h"
#include "ir/text.h"

namespace atb {
namespace {

using test::apply;
using test::count;
using test::expect_fused;
using test::expect_miss;

// What of a graph with a shared prefix differs from one that fuses.
struct PrefixForm {
  std::string prefix = "300";
  std::string once = "1";  // batch of the prefix before it is repeated
  std::string batch = "B";
  std::string own = "T + 4";
  std::string attrs = "scale=0.25, causal=true";
  std::string mask = "";  // of the attention
  bool turned = false;    // heads before keys
};

std::unique_ptr<Graph> prefixed(const PrefixForm& form) {
  const auto shape = [&](const std::string& batch, const std::string& keys) {
    return "f32[" + batch + ", " + (form.turned ? "2, " + keys : keys + ", 2") + ", 8]";
  };
  const std::string repeated = shape(form.batch, form.prefix);
  const std::string axis = form.turned ? "2" : "1";
  const std::string all = shape(form.batch, form.prefix + " + " + form.own);
  std::string text = "graph @prefixed(%q: f32[" + form.batch + ", T, 4, 8], %pk: " + shape(form.once, form.prefix) +
                     ", %pv: " + shape(form.once, form.prefix) + ", %k: " + shape(form.batch, form.own) +
                     ", %v: " + shape(form.batch, form.own) + (form.mask.empty() ? "" : ", %mask: f32" + form.mask) +
                     ") {\n  symbols " + (form.batch == "B" ? "B in [1, 64], " : "") + "T in [1, 512]\n";
  for (const std::string part : {"k", "v"}) {
    text += "  %r" + part + " = broadcast(%p" + part + ") {shape=" + repeated.substr(3) + "} : " + repeated + "\n";
    text += "  %a" + part + " = concat(%r" + part + ", %" + part + ") {axis=" + axis + "} : " + all + "\n";
    if (!form.turned) continue;
    text += "  %t" + part + " = transpose(%a" + part + ") {perm=[0, 2, 1, 3]} : f32[" + form.batch + ", " +
            form.prefix + " + " + form.own + ", 2, 8]\n";
  }
  const std::string name = form.turned ? "%t" : "%a";
  text += "  %o = flash_attention(%q, " + name + "k, " + name + "v" + (form.mask.empty() ? "" : ", %mask") + ") {" +
          form.attrs + "} : f32[" + form.batch + ", T, 4, 8]\n  return %o\n}\n";
  return parse_graph(text);
}

TEST(SharedPrefix, AttendsThePrefixOnceUpToItsLastPartition) {
  for (const bool turned : {false, true}) {
    auto graph = prefixed({.turned = turned});
    const auto before = graph->clone();
    apply(*graph, "SharedPrefix");
    EXPECT_EQ(count(*graph, "flash_attention"), 0);
    EXPECT_EQ(count(*graph, "block_attention"), 2);
    EXPECT_EQ(count(*graph, "output_merge"), 1);
    test::expect_same_numbers(*before, *graph);
  }
}

TEST(SharedPrefix, TakesMasksSoftcapsAndWholePartitions) {
  expect_fused(prefixed({.prefix = "128"}), "SharedPrefix", 1);
  expect_fused(prefixed({.attrs = "scale=0.25, softcap=5.0"}), "SharedPrefix", 1);
  expect_fused(prefixed({.attrs = "scale=0.25", .mask = "[B, 1, T, T + 304]"}), "SharedPrefix", 1);
  expect_fused(prefixed({.attrs = "scale=0.25, causal=true", .mask = "[T + 304]"}), "SharedPrefix", 1);
}

TEST(SharedPrefix, NeedsAPrefixThatAllQueriesSee) {
  auto windowed = prefixed({.attrs = "scale=0.25, causal=true, window=40"});
  expect_miss(*windowed, "SharedPrefix",
              "Pattern SharedPrefix not matched at layer -1: o: a prefix that all queries see, found a window of 40, "
              "needs a prefix that all queries see");
  auto few = prefixed({.own = "3"});
  expect_miss(*few, "SharedPrefix",
              "Pattern SharedPrefix not matched at layer -1: o: a prefix that all queries see, found [B, 3, 2, 8] own "
              "keys, needs one for each query or more");
  expect_fused(prefixed({.own = "3", .attrs = "scale=0.25"}), "SharedPrefix", 1);
}

TEST(SharedPrefix, NeedsSeveralSequences) {
  auto graph = prefixed({.batch = "1"});
  expect_miss(*graph, "SharedPrefix",
              "Pattern SharedPrefix not matched at layer -1: ak: keys after a shared prefix, found a batch of 1, needs "
              "two sequences or more");
  expect_fused(prefixed({.batch = "2"}), "SharedPrefix", 1);
}

TEST(SharedPrefix, NeedsAWholePartition) {
  auto graph = prefixed({.prefix = "127"});
  expect_miss(
      *graph, "SharedPrefix",
      "Pattern SharedPrefix not matched at layer -1: ak: keys after a shared prefix, found a prefix of 127 keys, "
      "needs 128 or more");
  expect_fused(prefixed({.prefix = "2*T + 120", .attrs = "scale=0.25"}), "SharedPrefix", 1);  // 130 in this test
  expect_fused(prefixed({.prefix = "2*T", .attrs = "scale=0.25"}), "SharedPrefix",
               1);  // 10: no whole partition, and right
}

TEST(SharedPrefix, SaysNothingWhereThereIsNoPrefix) {
  auto graph = parse_graph(
      "graph @plain(%q: f32[B, T, 4, 8], %k: f32[B, T, 2, 8], %v: f32[B, T, 2, 8], %past: f32[B, T, 2, 8]) {\n"
      "  %keys = concat(%past, %k) {layer=0, axis=1} : f32[B, 2*T, 2, 8]\n"
      "  %values = concat(%past, %v) {layer=0, axis=1} : f32[B, 2*T, 2, 8]\n"
      "  %o = flash_attention(%q, %keys, %values) {layer=0, scale=0.25} : f32[B, T, 4, 8]\n  return %o\n}\n");
  EXPECT_TRUE(apply(*graph, "SharedPrefix").misses.empty());
}

TEST(SharedPrefix, NeedsKeysThatComeAfterThePrefix) {
  auto graph = prefixed({});
  Node* concat = test::find(*graph, "av");
  Value* prefix = concat->input(0);
  graph->set_input(concat, 0, concat->input(1));
  graph->set_input(concat, 1, prefix);
  const MatchReport report = apply(*graph, "SharedPrefix");
  EXPECT_TRUE(report.patterns.empty());  // a rare pattern that no constraint stopped is left out
  EXPECT_TRUE(report.misses.empty());
}

std::unique_ptr<Graph> normed(const std::string& q_norm, const std::string& k_norm, const std::string& load = "") {
  return parse_graph(
      "graph @normed(%q: f32[B, T, 4, 8], %k: f32[B, T, 2, 8], %v: f32[B, T, 2, 8]) {\n"
      "  const @qw : f32[8]\n  const @kw : f32[8]\n  const @kb : f32[8]\n"
      "  %qn = " +
      q_norm + " : f32[B, T, 4, 8]\n  %kn = " + k_norm +
      " : f32[B, T, 2, 8]\n"
      "  %a, %b, %c = qkv_load(%qn, %kn, %v)" +
      load +
      " : f32[B, T, 4, 8], "
      "f32[B, 2, floordiv(T + 15, 16), 8, 16], f32[B, 2, T, 8]\n  return %a, %b, %c\n}\n");
}

TEST(NormLoad, TakesTheNormsOfBoth) {
  for (const auto& [q, k] :
       {std::pair<std::string, std::string>{"rms_norm(%q, @qw) {eps=1e-05}", "rms_norm(%k, @kw) {eps=1e-05}"},
        {"layer_norm(%q, @qw) {eps=1e-05}", "layer_norm(%k, @kw, @kb) {eps=1e-05}"},
        {"layer_norm(%q) {eps=1e-05}", "layer_norm(%k, _, @kb) {eps=1e-05}"}}) {
    auto graph = normed(q, k);
    test::fill_constants(*graph);
    const auto before = graph->clone();
    apply(*graph, "NormLoad");
    EXPECT_EQ(graph->nodes().size(), 1u) << q;
    test::expect_same_numbers(*before, *graph);
  }
}

TEST(NormLoad, NeedsNormsAlikeThatNobodyElseReads) {
  const std::string rms = "rms_norm(%q, @qw) {eps=1e-05}";
  auto graph = normed(rms, "rms_norm(%k, @kw) {eps=1e-06}");
  expect_miss(*graph, "NormLoad",
              "Pattern NormLoad not matched at layer -1: kn: norms alike, found rms_norm eps 0.000001, needs rms_norm "
              "eps 0.000010");
  graph = normed(rms, "layer_norm(%k, @kw) {eps=1e-05}");
  EXPECT_EQ(apply(*graph, "NormLoad").patterns[0].matches, 0);
  graph = normed(rms, "rms_norm(%k, @kw) {eps=1e-05}");
  graph->set_outputs({graph->outputs()[0], test::find(*graph, "kn")->output()});
  EXPECT_EQ(apply(*graph, "NormLoad").patterns[0].matches, 0);
  graph = normed(rms, "rms_norm(%k, @kw) {eps=1e-05}", " {norm=\"rms\", eps=1e-05}");
  EXPECT_EQ(apply(*graph, "NormLoad").patterns[0].matches, 0);
}

}  // namespace
}  // namespace atb
