// SPDX-License-Identifier: Apache-2.0
// Declared blocks: their plain graphs as text, names of parameters, and errors.
#include "blocks/block.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "blocks/item.h"
#include "core/error.h"
#include "ir/text.h"
#include "ir/verifier.h"

namespace atb {
namespace {

BlockItem item(std::string kind, std::string name = {}, Attrs attrs = {}) {
  return {std::move(kind), std::move(name), std::move(attrs)};
}

BlockItem linear(std::string name, int64_t out) { return item("linear", std::move(name), {{"out_features", out}}); }

BlockItem attention(int64_t heads) { return item("flash_attention", "attn", {{"num_heads", heads}, {"causal", true}}); }

Type floats(std::string_view tokens, int64_t width) {
  return {DType::kF32, {block_symbol("B"), block_symbol(tokens), width}};
}

BlockCall call_of(int64_t width) { return {.inputs = {{"x", floats("T", width)}}}; }

std::string text_of(const Block& block, const BlockCall& call) {
  const BlockGraph built = block.graph(call);
  verify(*built.graph, "the test");
  return print(*built.graph);
}

void expect_error(const std::function<void()>& run, const std::string& message) {
  try {
    run();
    FAIL() << "no error; expected " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
}

TEST(BlockTest, FeedForwardBlockIsPlainOperators) {
  const Block block({item("layer_norm"), linear("up", 8), item("silu"), linear("", 4), item("residual_add")});
  EXPECT_EQ(text_of(block, call_of(4)), R"(graph @GraphOp(%x: f32[B, T, 4]) {
  symbols B in [1, 65536], T in [1, 1048576]
  const @0.weight : f32[4]
  const @0.bias : f32[4]
  const @up.weight : f32[8, 4]
  const @up.bias : f32[8]
  const @3.weight : f32[4, 8]
  const @3.bias : f32[4]
  %0 = layer_norm(%x, @0.weight, @0.bias) {scope="0", eps=1e-05} : f32[B, T, 4]
  %up = linear(%0, @up.weight, @up.bias) {scope="up"} : f32[B, T, 8]
  %2 = silu(%up) {scope="2"} : f32[B, T, 8]
  %3 = linear(%2, @3.weight, @3.bias) {scope="3"} : f32[B, T, 4]
  %4 = add(%x, %3) {scope="4"} : f32[B, T, 4]
  return %4 as output
}
)");
}

TEST(BlockTest, StreamsOfTheirOwnGoOverTheSameItems) {
  const Block block(
      {item("rms_norm", "query"), linear("p", 12), item("flash_attention", "attn", {{"num_heads", int64_t{2}}})});
  BlockCall call = call_of(4);
  call.inputs.emplace_back("key", floats("S", 4));
  call.inputs.emplace_back("value", floats("S", 4));
  const std::string text = text_of(block, call);
  EXPECT_NE(text.find("%attn.q = slice(%p) {scope=\"attn\", axis=-1, bounds=[0, 4]} : f32[B, T, 4]"), std::string::npos)
      << text;
  EXPECT_NE(text.find("bounds=[4, 8]} : f32[B, S, 4]"), std::string::npos) << text;
  EXPECT_NE(text.find("bounds=[8, 12]} : f32[B, S, 4]"), std::string::npos) << text;
  EXPECT_EQ(block.graph(call).parameters.size(), 3u);
}

TEST(BlockTest, EveryParameterOfAGraphHasBeenDeclared) {
  BlockItem branch = item("branch");
  branch.branches = {{linear("gate", 8), item("silu")}, {linear("", 8)}, {}};
  BlockItem nested = item("graph");
  nested.branches = {
      {item("gated_mlp", "mlp", {{"hidden_features", int64_t{6}}, {"bias", true}}), item("rms_norm", "output")}};
  const Block block({linear("in", 8), branch, item("add"), nested, item("layer_norm", "last", {{"bias", false}})});
  const std::vector<std::string> names = {"in.weight",
                                          "in.bias",
                                          "gate.weight",
                                          "gate.bias",
                                          "1.1.0.weight",
                                          "1.1.0.bias",
                                          "3.mlp.gate_proj.weight",
                                          "3.mlp.gate_proj.bias",
                                          "3.mlp.up_proj.weight",
                                          "3.mlp.up_proj.bias",
                                          "3.mlp.down_proj.weight",
                                          "3.mlp.down_proj.bias",
                                          "3.1.weight",
                                          "last.weight"};
  EXPECT_EQ(block.parameter_names(), names);
  std::vector<std::string> made;
  for (const BlockParameter& parameter : block.graph(call_of(8)).parameters) made.push_back(parameter.name);
  EXPECT_EQ(made, names);
}

TEST(BlockTest, CachedAttentionsAreRecordedInOrder) {
  BlockItem first = attention(4);
  first.name = "first";
  first.attrs.set("kv_cache", true);
  first.attrs.set("num_kv_heads", int64_t{2});
  BlockItem second = attention(2);
  second.attrs.set("kv_cache", true);
  const Block block({linear("a", 64), first, linear("b", 24), second});
  EXPECT_TRUE(block.cached());
  const BlockGraph built = block.graph(call_of(8));
  ASSERT_EQ(built.cached.size(), 2u);
  EXPECT_EQ(built.cached[0].scope, "first");
  EXPECT_EQ(built.cached[0].kv_heads, 2);
  EXPECT_EQ(built.cached[0].head_dim, 8);
  EXPECT_EQ(built.cached[1].scope, "attn");
  EXPECT_EQ(built.cached[1].head_dim, 4);
  EXPECT_FALSE(Block({linear("a", 24), attention(2)}).cached());
}

TEST(BlockTest, AttentionWithoutProjectionIsNoted) {
  EXPECT_EQ(Block({attention(2)}).graph(call_of(8)).warnings.size(), 1u);
  EXPECT_TRUE(Block({linear("p", 24), attention(2)}).graph(call_of(8)).warnings.empty());
}

TEST(BlockTest, ErrorsNameTheItem) {
  expect_error([] { Block({item("conv")}); }, "there is no item \"conv\"; items are add, branch");
  expect_error([] { Block({item("linear", "q")}); }, "[linear] q: attribute out_features is missing");
  expect_error([] { Block({item("silu", "a"), item("silu", "a")}); }, "[silu] a: two items have this name");
  expect_error(
      [] {
        Block({linear("p", 10), attention(2)}).graph(call_of(4));
      },
      "[flash_attention] attn: the projection gives 10 features; expected (num_heads + 2 * num_kv_heads) * "
      "head_dim = a multiple of 6");
  BlockCall call = call_of(4);
  call.inputs.emplace_back("residual", floats("T", 4));
  expect_error([&] { Block({item("silu")}).graph(call); }, "residual is given, but no item reads it");
}

TEST(BlockTest, TheFirstItemWhoseParametersHaveAnotherShapeIsNamed) {
  const Block block({item("layer_norm"), linear("up", 8), linear("down", 4), item("residual_add")});
  BlockCall call = call_of(4);
  call.shapes = {{"0.weight", {4}}, {"0.bias", {4}}, {"up.weight", {8, 4}}, {"down.weight", {4, 8}}};
  EXPECT_EQ(text_of(block, call), text_of(block, call_of(4)));
  call.inputs = {{"x", floats("T", 6)}};
  expect_error([&] { block.graph(call); }, "[layer_norm] 0: its weight is [4], but this call needs [6]; check");
  expect_error([&] { block.graph(call_of(6)); },
               "[residual_add] 3: adds \"input\", f32[B, T, 6], to what the item before gives, f32[B, T, 4]");
  expect_error(
      [] {
        Block({linear("a", 8), item("residual_add", "sum", {{"size", int64_t{1}}})});
      },
      "[residual_add] sum: attribute size: there is none of that name; it has source");
}

TEST(BlockTest, PluginsAreExternalNodesAroundTheirItem) {
  const Block block({linear("up", 6), item("silu"), linear("down", 4), item("residual_add", "output")});
  BlockCall call = call_of(4);
  call.plugins = {{.point = "pre_up", .before = "a", .after = "b"},
                  {.point = "post_linear", .after = "c"},
                  {.point = "pre_residual", .before = "d"}};
  const std::string text = text_of(block, call);
  EXPECT_EQ(
      text.substr(text.find("  %up.preprocess")),
      R"(  %up.preprocess = external(%x) {scope="up", kernel="a", target="pre_up", types="f32[B, T, 4]"} : f32[B, T, 4]
  %up = linear(%up.preprocess, @up.weight, @up.bias) {scope="up"} : f32[B, T, 6]
  %up.postprocess = external(%up) {scope="up", kernel="b", target="pre_up", types="f32[B, T, 6]"} : f32[B, T, 6]
  %up.postprocess_1 = external(%up.postprocess) {scope="up", kernel="c", target="post_linear", types="f32[B, T, 6]"} : f32[B, T, 6]
  %1 = silu(%up.postprocess_1) {scope="1"} : f32[B, T, 6]
  %down = linear(%1, @down.weight, @down.bias) {scope="down"} : f32[B, T, 4]
  %down.postprocess = external(%down) {scope="down", kernel="c", target="post_linear", types="f32[B, T, 4]"} : f32[B, T, 4]
  %output.preprocess, %output.preprocess.1 = external(%down.postprocess, %x) {scope="output", kernel="d", target="pre_residual", types="f32[B, T, 4], f32[B, T, 4]"} : f32[B, T, 4], f32[B, T, 4]
  %output = add(%output.preprocess.1, %output.preprocess) {scope="output"} : f32[B, T, 4]
  return %output
}
)");
}

TEST(BlockTest, PluginsOfAttentionSeeHeads) {
  const Block block(
      {linear("p", 32), item("flash_attention", "attn", {{"num_heads", int64_t{4}}, {"num_kv_heads", int64_t{2}}})});
  BlockCall call = call_of(8);
  call.plugins = {{.point = "pre_attention", .before = "k"}};
  const std::string text = text_of(block, call);
  EXPECT_NE(text.find("types=\"f32[B, 4, T, 4], f32[B, 2, T, 4], f32[B, 2, T, 4]\""), std::string::npos) << text;
}

TEST(BlockTest, PluginsOfABlockInsideStayInIt) {
  BlockItem nested = item("graph");
  nested.branches = {{linear("up", 4)}};
  const Block block({linear("up", 4), nested});
  BlockCall call = call_of(4);
  call.plugins = {{.point = "post_linear", .after = "k", .within = "1"}};
  const std::string text = text_of(block, call);
  EXPECT_NE(text.find("%1.up.postprocess = external"), std::string::npos) << text;
  EXPECT_EQ(text.find("%up.postprocess"), std::string::npos) << text;
  call.plugins[0].point = "post_up.x";
  expect_error(
      [&] { block.graph(call); },
      "[plugin] post_up.x is no point of this block in 1; points are pre_up, post_up, pre_linear, post_linear, "
      "pre_1, post_1, pre_graph, post_graph, pre_1.up, post_1.up");
  call.plugins = {{.point = "linear", .before = "k"}};
  expect_error([&] { block.graph(call); }, "[plugin] linear is no point of this block; points are");
}

TEST(BlockTest, NestingIsBounded) {
  BlockItem inner = item("silu");
  for (int i = 0; i < 100; ++i) {
    BlockItem outer = item("graph");
    outer.branches = {{inner}};
    inner = outer;
  }
  expect_error([&] { Block({inner}); }, "deep");
}

TEST(BlockTest, EveryItemSaysWhatItDoes) {
  for (const ItemDef& def : ItemRegistry::instance().all()) {
    EXPECT_FALSE(def.doc.empty()) << def.kind;
    for (const ItemParameter& parameter : def.parameters) EXPECT_FALSE(parameter.suffix.empty()) << def.kind;
  }
}

}  // namespace
}  // namespace atb
