// SPDX-License-Identifier: Apache-2.0
// Graph text: round trips, exact numbers, and broken text of every kind.
#include "ir/text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "ir/demo_text.h"
#include "ir/verifier.h"

namespace atb {
namespace {

using testing::kDemoText;

TEST(Text, PrintedTextComesBackTheSame) {
  const std::unique_ptr<Graph> graph = parse_graph(kDemoText);
  verify(*graph, "parse");
  EXPECT_EQ(print(*graph), kDemoText);
  EXPECT_EQ(graph->output_names(), (std::vector<std::string>{"logits", "sum", "r"}));
  const Node* embedding = graph->nodes()[0];
  EXPECT_EQ(embedding->layer(), 0);
  EXPECT_EQ(embedding->scope(), "model.embed \"x\"");
  EXPECT_EQ(graph->nodes()[2]->input(1), nullptr);
  EXPECT_TRUE(graph->nodes()[0]->input(1)->constant()->absent());
  EXPECT_EQ(graph->nodes()[5]->input(1)->constant()->to_f32(), std::vector<float>{0.5f});
  EXPECT_EQ(graph->inputs()[0]->dim(1).upper(), 8192);
}

TEST(Text, CommentsAndUndeclaredSymbolsAreFine) {
  const std::unique_ptr<Graph> graph = parse_graph("# a comment\ngraph @g(%x: f32[T]) {\n  # another\n  return %x\n}");
  EXPECT_EQ(graph->inputs()[0]->shape()[0], Dim::symbol("T"));
  EXPECT_EQ(print(*parse_graph(print(*graph))), print(*graph));
}

TEST(Text, NumbersAreExact) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {0.1f,
                                     1.0f / 3.0f,
                                     -inf,
                                     inf,
                                     std::numeric_limits<float>::denorm_min(),
                                     -0.0f,
                                     1e30f,
                                     16777216.0f,
                                     std::numeric_limits<float>::max()};
  Graph graph("g");
  Builder b(graph);
  const auto count = static_cast<int64_t>(values.size());
  Value* c = graph.add_constant(Constant::from_f32("c", {count}, values));
  Value* nan = b.scalar(std::numeric_limits<double>::quiet_NaN());
  graph.set_outputs({b("mul", {c, nan}), b("rms_norm", {c, c}, {{"eps", 0.1}})});
  const std::string text = print(graph);
  const std::unique_ptr<Graph> back = parse_graph(text);
  EXPECT_EQ(print(*back), text);
  const std::vector<float> read = back->nodes()[0]->input(0)->constant()->to_f32();
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(read[i]), std::bit_cast<uint32_t>(values[i])) << values[i];
  }
  EXPECT_TRUE(std::isnan(back->nodes()[0]->input(1)->constant()->to_f32()[0]));
  EXPECT_EQ(back->nodes()[1]->attrs().real("eps"), 0.1);
}

TEST(Text, OddNamesAreQuoted) {
  Graph graph("a graph");
  Value* x = graph.add_input("in put\n\"%\"\x01", {DType::kF32, {4}});
  graph.set_outputs({Builder(graph)("silu", {x}, {}, "kv'")}, {"out put"});
  const std::string text = print(graph);
  EXPECT_EQ(print(*parse_graph(text)), text);
  EXPECT_EQ(parse_graph(text)->inputs()[0]->name(), x->name());
}

TEST(Text, StatesAndEmptyGraphs) {
  const std::string text = "graph @g(%kv: state) {\n  return %kv\n}\n";
  EXPECT_EQ(print(*parse_graph(text)), text);
  EXPECT_EQ(print(*parse_graph("graph @g() { return }")), "graph @g() {\n  return\n}\n");
}

std::string error_of(const std::string& text) {
  try {
    parse_graph(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
    return error.what();
  }
  return "";
}

std::string in_body(const std::string& line) {
  return "graph @g(%x: f32[T, 4]) {\n  symbols T in [1, 8]\n" + line + "\n  return %x\n}\n";
}

TEST(Text, ErrorsNameTheLine) {
  EXPECT_EQ(error_of(in_body("  %y = sliu(%x) : f32[T, 4]")), "[graph text] line 3: no operator \"sliu\"");
  EXPECT_EQ(error_of(in_body("  %y = silu(%z) : f32[T, 4]")), "[graph text] line 3: %z is used before it is defined");
  EXPECT_EQ(error_of(in_body("  %y = silu(%x) : f32[T, 5]")), "[graph text] line 3: %y is f32[T, 4], not f32[T, 5]");
  EXPECT_EQ(error_of(in_body("  %y = silu(%x) {a=1} : f32[T, 4]")), "[graph text] line 3: silu has no attribute \"a\"");
}

TEST(Text, BrokenTextIsRefused) {
  const std::vector<std::string> bad = {
      "",
      "graph",
      "graph @g(",
      "graph @g(%x: f33[1]) { return }",
      "graph @g(%x: f32[1]) { return %y }",
      "graph @g(%x: f32[1]) { return %x } more",
      "graph @g(%x: f32[1], %x: f32[1]) { return }",
      "graph @g(%x: f32[1,1,1,1,1,1,1,1,1]) { return }",
      "graph @g(%x: f32[1, ]) { return }",
      "graph @g(%x: f32[1] { return }",
      "graph @\"g() { return }",
      "graph @g() { symbols T in [5, 1] return }",
      "graph @g() { symbols T in [1, 2], T in [1, 2] return }",
      "graph @g() { const @c : f32[4611686018427387904, 4611686018427387904] return }",
      "graph @g() { const @c : f32[-1] return }",
      "graph @g() { const @c : f32[T] return }",
      "graph @g() { const @c : f32[33] q8_0 return }",
      "graph @g() { const @c : f32[17] = [1.0] return }",
      "graph @g() { const @c : f32[2] = [1.0] return }",
      "graph @g() { const @c : i8[1] = [300] return }",
      "graph @g() { const @c : f32[] = twelve return }",
      "graph @g() { const @c : f32[] const @c : f32[] return }",
      in_body("%y = silu(%x) {layer=99999999999} : f32[T, 4]"),
      in_body("%y, %z = silu(%x) : f32[T, 4], f32[T, 4]"),
      in_body("%y = silu(%x) :"),
      in_body("%x = silu(%x) : f32[T, 4]"),
      in_body("%y = silu() : f32[T, 4]"),
      in_body("%y = reshape(%x) {shape=[T, 5]} : f32[T, 5]"),
      in_body("%y = reshape(%x) {shape=[T*9223372036854775807*8, 5]} : f32[T, 5]"),
      in_body("%y = transpose(%x) {perm=[0, 2]} : f32[T, 4]"),
      in_body("%y = gelu(%x) {approximate=\"fast\"} : f32[T, 4]"),
  };
  for (const std::string& text : bad) EXPECT_NE(error_of(text), "") << text;
  EXPECT_NE(error_of("graph @g(%x: f32[" + std::string(100000, '(') + "]) { return }"), "");
  EXPECT_NE(error_of("graph @" + std::string(100000, 'g') + "() { return }"), "");
}

TEST(Text, EveryPrefixIsRefusedOrRead) {
  const std::string text = kDemoText;
  for (size_t length = 0; length + 2 < text.size(); ++length) EXPECT_NE(error_of(text.substr(0, length)), "") << length;
}

// Changed characters give an error or a graph that passes the verifier and prints itself: never anything worse.
TEST(Text, ChangedCharactersNeverDoHarm) {
  const std::string alphabet = "%@[]{}()=:,_*+-.\"\\ \nTB0919axe";
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    std::string text = kDemoText;
    for (uint32_t edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % text.size();
      const char c = alphabet[random() % alphabet.size()];
      if (random() % 2 == 0) {
        text[at] = c;
      } else {
        text.insert(at, 1, c);
      }
    }
    try {
      const std::unique_ptr<Graph> graph = parse_graph(text);
      verify(*graph, "parse");
      EXPECT_EQ(print(*parse_graph(print(*graph))), print(*graph));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what() << "\n" << text;
    }
  }
}

}  // namespace
}  // namespace atb
