// SPDX-License-Identifier: Apache-2.0
// Graph edits: names, use lists, order, schema checks, costs.
#include "ir/graph.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "ir/op.h"
#include "ir/text.h"
#include "ir/verifier.h"

namespace atb {
namespace {

const Dim kT = Dim::symbol("T", 1, 64);

ConstantRef absent(const std::string& name, std::vector<int64_t> shape, const Encoding* encoding = nullptr) {
  return Constant::absent(name, DType::kF32, encoding, std::move(shape));
}

Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(Code::kInternal, "");
}

TEST(Graph, NamesAreUniqueAndFollowTheOperator) {
  Graph graph("g");
  Builder b(graph);
  Value* x = graph.add_input("x", {DType::kF32, {kT, 4}});
  EXPECT_EQ(b("silu", {x})->name(), "silu");
  EXPECT_EQ(b("silu", {x})->name(), "silu_1");
  EXPECT_EQ(b("silu", {x}, {}, "x")->name(), "x_1");
  EXPECT_THROW(graph.add_input("x", {DType::kF32, {}}), Error);
}

TEST(Graph, OneValuePerConstantHandle) {
  Graph graph;
  const ConstantRef w = absent("w", {4});
  EXPECT_EQ(graph.add_constant(w), graph.add_constant(w));
  EXPECT_NE(graph.add_constant(w), graph.add_constant(absent("w", {4})));
}

TEST(Graph, ACloneLeavesOutConstantsThatNothingUses) {
  Graph graph;
  Builder b(graph);
  Value* used = graph.add_constant(Constant::from_f32("used", {2}, std::vector<float>{1, 2}));
  Value* returned = graph.add_constant(Constant::from_f32("returned", {2}, std::vector<float>{1, 2}));
  const ConstantRef handle = Constant::from_f32("unused", {2}, std::vector<float>{3, 4});
  graph.add_constant(handle);
  graph.set_outputs({b("relu", {used}), returned});
  const std::unique_ptr<Graph> copy = graph.clone();
  EXPECT_EQ(print(*copy), print(graph));
  verify(*copy, "clone");
  EXPECT_EQ(handle.use_count(), 2);                         // the test's and the first graph's
  EXPECT_EQ(copy->add_constant(handle)->name(), "unused");  // the name is free
}

TEST(Graph, AConstantThatAnotherOneReplacesIsLetGo) {
  Graph graph;
  Builder b(graph);
  const ConstantRef old = Constant::from_f32("old", {2}, std::vector<float>{1, 2});
  Value* from = graph.add_constant(old);
  Value* to = graph.add_constant(absent("new", {2}));
  graph.set_outputs({b("relu", {from})});
  graph.replace_all_uses(from, to);
  EXPECT_EQ(old.use_count(), 1);
  verify(graph, "replace");
  Value* again = graph.add_constant(old);
  EXPECT_NE(again, from);
  EXPECT_EQ(again->constant(), old);
  graph.set_outputs({b("relu", {from})});  // whoever still has the value sees one without data
  EXPECT_TRUE(from->constant()->absent());
  verify(*graph.clone(), "clone");
}

TEST(Graph, FurtherOutputsAreNumbered) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.add_input("x", {DType::kF32, {kT, 4}});
  Node* node =
      b.node("fused_add_norm", {x, x, graph.add_constant(absent("w", {4}))}, {{"eps", 1e-5}, {"kind", "rms"}}, "norm");
  EXPECT_EQ(node->output(0)->name(), "norm");
  EXPECT_EQ(node->output(1)->name(), "norm.1");
  EXPECT_EQ(x->uses().size(), 2u);
}

TEST(Graph, EditsKeepUseListsRight) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.add_input("x", {DType::kF32, {kT, 4}});
  Value* y = graph.add_input("y", {DType::kF32, {kT, 4}});
  Value* sum = b("add", {x, x});
  Value* out = b("silu", {sum});
  graph.set_outputs({out, sum});

  graph.replace_all_uses(x, y);
  EXPECT_TRUE(x->uses().empty());
  EXPECT_EQ(y->uses().size(), 2u);
  verify(graph, "replace");

  graph.set_input(sum->producer(), 1, x);
  EXPECT_EQ(y->uses().size(), 1u);
  EXPECT_EQ(x->uses(), (std::vector<Use>{{sum->producer(), 1}}));
  verify(graph, "set_input");

  graph.replace_all_uses(out, sum);  // graph outputs too
  EXPECT_EQ(graph.outputs(), (std::vector<Value*>{sum, sum}));
  graph.erase(out->producer());
  EXPECT_EQ(graph.nodes().size(), 1u);
  verify(graph, "erase");
  EXPECT_EQ(error_of([&] { graph.erase(sum->producer()); }).code(), Code::kInternal);
  EXPECT_EQ(error_of([&] { graph.erase_input(x); }).code(), Code::kInternal);
  graph.set_input(sum->producer(), 1, y);
  graph.erase_input(x);
  EXPECT_EQ(graph.find_input("x"), nullptr);
  verify(graph, "erase_input");
}

TEST(Graph, InsertsAndMovesBefore) {
  Graph graph;
  Value* x = graph.add_input("x", {DType::kF32, {4}});
  Builder end(graph);
  Value* c = end("silu", {x}, {}, "c");
  Builder before(graph, c->producer());
  Value* a = before("relu", {x}, {}, "a");
  Value* b = before("relu", {x}, {}, "b");
  EXPECT_EQ(graph.nodes(), (std::vector<Node*>{a->producer(), b->producer(), c->producer()}));
  graph.move_before(c->producer(), a->producer());
  EXPECT_EQ(graph.position(c->producer()), 0);
  EXPECT_EQ(graph.position(b->producer()), 2);
  graph.move_before(c->producer(), nullptr);
  EXPECT_EQ(graph.position(c->producer()), 2);
  EXPECT_THROW(graph.set_order({a->producer(), a->producer(), b->producer()}), Error);
}

// Hundreds of nodes before one anchor leave no gap; positions stay those of the list.
TEST(Graph, PositionsFollowTheListThroughManyEdits) {
  Graph graph;
  Value* x = graph.add_input("x", {DType::kF32, {2}, nullptr});
  const OpDef& relu = OpRegistry::instance().get("relu");
  Node* anchor = graph.add_node(relu, {x});
  for (int i = 0; i < 600; ++i) graph.add_node(relu, {x}, {}, "before", anchor);
  for (int i = 0; i < 600; ++i) graph.add_node(relu, {x}, {}, "first", graph.nodes().front());
  for (size_t i = 0; i < graph.nodes().size(); i += 7) graph.erase(graph.nodes()[i]);
  graph.move_before(graph.nodes()[500], graph.nodes()[3]);
  graph.set_order({graph.nodes().rbegin(), graph.nodes().rend()});
  graph.add_node(relu, {x});
  const auto copy = graph.clone();
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    ASSERT_EQ(graph.position(graph.nodes()[i]), static_cast<int64_t>(i));
    ASSERT_EQ(copy->position(copy->nodes()[i]), static_cast<int64_t>(i));
  }
  EXPECT_THROW(graph.position(copy->nodes()[5]), Error);
}

TEST(Graph, ReplacingNeedsEqualTypes) {
  Graph graph;
  Value* x = graph.add_input("x", {DType::kF32, {kT, 4}});
  Value* y = graph.add_input("y", {DType::kF32, {kT, 5}});
  EXPECT_EQ(error_of([&] { graph.replace_all_uses(x, y); }).code(), Code::kInternal);
}

TEST(Graph, CloneAndMoveAreWhole) {
  Graph graph("g");
  Builder b(graph);
  Value* x = graph.add_input("x", {DType::kF32, {kT, 4}});
  b.set_layer(3);
  b.set_scope("model.layers.3");
  Value* y = b("mul", {b("silu", {x}), b.scalar(2)});
  graph.set_outputs({y}, {"result"});
  const std::unique_ptr<Graph> copy = graph.clone();
  verify(*copy, "clone");
  EXPECT_EQ(print(*copy), print(graph));
  EXPECT_EQ(copy->nodes()[0]->layer(), 3);
  EXPECT_NE(copy->inputs()[0], x);
  const Graph moved = std::move(*copy);
  verify(moved, "move");
  EXPECT_EQ(print(moved), print(graph));
}

TEST(Graph, SchemaViolationsSayWhatIsAllowed) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.add_input("x", {DType::kF32, {kT, 4}});
  Value* w = graph.add_constant(absent("w", {4}));
  const auto message = [&](std::string_view op, std::vector<Value*> inputs, Attrs attrs) {
    const Error error = error_of([&] { b(op, std::move(inputs), std::move(attrs), "n"); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    return std::string(error.what());
  };
  EXPECT_EQ(message("rms_norm", {x, w}, {}), "[rms_norm] n: attribute eps is missing (kind real)");
  EXPECT_EQ(message("rms_norm", {x}, {{"eps", 1e-5}}), "[rms_norm] n: input w is missing; inputs are (x, w)");
  EXPECT_EQ(message("rms_norm", {x, w, w}, {{"eps", 1e-5}}), "[rms_norm] n: 3 inputs; inputs are (x, w)");
  EXPECT_EQ(message("rms_norm", {x, w}, {{"eps", "no"}}), "[rms_norm] n: attribute eps: is of kind text, must be real");
  EXPECT_EQ(message("silu", {x}, {{"speed", 1.0}}),
            "[silu] n: attribute speed: there is none of that name; it has none");
  EXPECT_EQ(error_of([&] { b("no_such", {x}); }).code(), Code::kNotFound);
  EXPECT_TRUE(graph.nodes().empty());  // nothing is left behind
  EXPECT_TRUE(x->uses().empty());
}

TEST(Graph, IntegersStandForRealsAndDefaultsAreFilledIn) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.add_input("x", {DType::kF32, {kT, 4}});
  Value* w = graph.add_constant(absent("w", {4}));
  EXPECT_EQ(b("rms_norm", {x, w}, {{"eps", int64_t{1}}})->producer()->attrs().real("eps"), 1.0);
  EXPECT_FALSE(b("matmul", {x, graph.add_input("y", {DType::kF32, {4, kT}})})->producer()->attrs().flag("transpose_b"));
}

TEST(Graph, CostsCountWhatIsReadAndWritten) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.add_input("x", {DType::kF32, {kT, 64}});
  Value* w = graph.add_constant(absent("w", {64}));
  EXPECT_EQ(node_bytes(*b("rms_norm", {x, w}, {{"eps", 1e-5}})->producer()), kT * 512 + 256);
  EXPECT_EQ(node_bytes(*b("mul", {x, x})->producer()), kT * 512);  // x is read once
  EXPECT_EQ(node_bytes(*b.reshape(x, {64, kT})->producer()), Dim(0));
  EXPECT_EQ(node_flops(*b.reshape(x, {64, kT})->producer()), Dim(0));
  Value* y = graph.add_input("y", {DType::kF32, {64, 8}});
  EXPECT_EQ(node_flops(*b("matmul", {x, y})->producer()), kT * (2 * 64 * 8));

  // An embedding reads only the rows it gathers, as they are stored.
  const Encoding* q8 = find_encoding("q8_0");
  Value* ids = graph.add_input("ids", {DType::kI32, {kT}});
  Value* table = graph.add_constant(absent("table", {49152, 64}, q8));
  EXPECT_EQ(node_bytes(*b("embedding", {ids, table})->producer()), kT * (4 + 2 * q8->block_bytes + 256));
}

TEST(Registry, EveryOperatorIsDocumentedAndFusedOnesDecompose) {
  for (const OpDef* op : OpRegistry::instance().all()) {
    EXPECT_FALSE(op->doc.empty()) << op->name;
    EXPECT_TRUE(!op->fused || op->decompose) << op->name;
  }
  OpRegistry registry;
  EXPECT_THROW(registry.add({}), Error);
}

}  // namespace
}  // namespace atb
