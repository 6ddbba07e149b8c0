// SPDX-License-Identifier: Apache-2.0
// Which constants of a program let their bytes go, and when.
#include "runtime/source_release.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/thread_team.h"
#include "devices/device.h"
#include "ir/builder.h"
#include "ir/interpreter.h"
#include "ir/text.h"
#include "runtime/executor.h"
#include "runtime/plan.h"

namespace atb {
namespace {

constexpr int64_t kWidth = 20;

// Constants whose bytes somebody outside lends; knows which of them are gone, and how much was packed by then.
class Lender {
 public:
  explicit Lender(const PackedStore& store) : store_(store) {}

  ConstantRef lend(const std::string& name, std::vector<int64_t> shape) {
    int64_t elements = 1;
    for (const int64_t extent : shape) elements *= extent;
    auto values = std::make_unique<std::vector<float>>();
    for (int64_t i = 0; i < elements; ++i) values->push_back(static_cast<float>((i * 7 + elements) % 13 - 6) / 8.0f);
    auto storage = std::make_shared<Storage>();
    storage->bytes = std::as_bytes(std::span(*values));
    storage->owner = std::shared_ptr<const std::vector<float>>(values.release(), [this, name](const auto* held) {
      gone_[name] = store_.bytes();
      delete held;
    });
    return Constant::from_storage(name, DType::kF32, nullptr, std::move(shape), std::move(storage), 0);
  }
  std::vector<std::string> gone() const {
    std::vector<std::string> names;
    for (const auto& [name, bytes] : gone_) names.push_back(name);
    return names;
  }
  size_t packed_when_gone(const std::string& name) const { return gone_.at(name); }

 private:
  const PackedStore& store_;
  std::map<std::string, size_t> gone_;
};

using Names = std::vector<std::string>;

// A graph from x f32[T, kWidth] and ids i32[T], with constants that are lent.
struct Rig {
  PackedStore store;
  Lender lender{store};
  std::unique_ptr<Graph> graph = std::make_unique<Graph>("g");
  Builder b{*graph};
  Value* x = graph->add_input("x", {DType::kF32, {Dim::symbol("T", 1, 64), kWidth}});
  Value* ids = graph->add_input("ids", {DType::kI32, {Dim::symbol("T", 1, 64)}});

  Value* lent(const std::string& name, std::vector<int64_t> shape) {
    return graph->add_constant(lender.lend(name, std::move(shape)));
  }
  Value* matrix(const std::string& name) { return lent(name, {kWidth, kWidth}); }

  // The names of what is gone once a program is made, whose first output must be the interpreter's.
  Names gone_after_program(std::vector<Value*> outputs) {
    graph->set_outputs(std::move(outputs));
    RefTensor<float> row, id;
    row.shape = {1, kWidth};
    for (int64_t i = 0; i < kWidth; ++i) row.f.push_back(static_cast<float>(i % 5) - 2.0f);
    id.dtype = DType::kI32;
    id.shape = {1};
    id.i = {3};
    const std::vector<float> expected = interpret<float>(*graph, {{"x", row}, {"ids", id}}).at(0).f;
    const std::string text = print(*graph);
    const Program program(std::move(graph), find_device("cpu"), store, {});
    const Names result = lender.gone();
    EXPECT_EQ(print(program.graph()), text);
    expect_output(program, row.f, expected);
    return result;
  }

  static void expect_output(const Program& program, std::vector<float> row, const std::vector<float>& expected) {
    const Bindings one{{"T", 1}};
    const Plan plan(program, one);
    int32_t id = 3;
    std::vector<std::byte> arena(plan.arena_bytes() + 1);
    std::vector<std::vector<float>> outputs(program.graph().outputs().size(), std::vector<float>(512));
    std::vector<std::byte*> memory;
    for (auto& output : outputs) memory.push_back(reinterpret_cast<std::byte*>(output.data()));
    const std::vector<std::byte*> inputs{reinterpret_cast<std::byte*>(row.data()), reinterpret_cast<std::byte*>(&id)};
    Frame frame = plan.resolve(one, inputs, memory, arena.data());
    ThreadTeam team(1);
    Executor executor(team);
    executor.run(program, frame, {});
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(outputs[0][i], expected[i], 1e-4f) << i;
  }
};

TEST(SourceRelease, PackedWeightsGoOneAfterTheOther) {
  Rig rig;
  Value* hidden = rig.b("linear", {rig.x, rig.matrix("first"), rig.lent("bias", {kWidth})});
  hidden = rig.b("rms_norm", {hidden, rig.lent("norm", {kWidth})}, {{"eps", 1e-5}});
  EXPECT_EQ(rig.gone_after_program({rig.b("linear", {hidden, rig.matrix("second")})}),
            (Names{"bias", "first", "norm", "second"}));
  EXPECT_LT(rig.lender.packed_when_gone("first"), rig.store.bytes());  // the second was not packed yet
  EXPECT_LT(rig.lender.packed_when_gone("norm"), rig.store.bytes());
  EXPECT_EQ(rig.lender.packed_when_gone("second"), rig.store.bytes());
}

TEST(SourceRelease, WhatIsReadInPlaceStays) {
  Rig rig;
  Value* rows = rig.b("embedding", {rig.ids, rig.lent("table", {8, kWidth})});
  Value* sum = rig.b("add", {rows, rig.lent("offset", {kWidth})});
  EXPECT_EQ(rig.gone_after_program({rig.b("linear", {sum, rig.matrix("w")})}), (Names{"w"}));
}

TEST(SourceRelease, ATableThatIsTheHeadTooStays) {
  Rig rig;
  Value* table = rig.lent("table", {8, kWidth});
  Value* rows = rig.b("embedding", {rig.ids, table});
  EXPECT_EQ(rig.gone_after_program({rig.b("linear", {rig.b("add", {rows, rig.x}), table})}), Names{});
}

TEST(SourceRelease, AWeightOfTwoLayersGoesAfterTheSecond) {
  Rig rig;
  Value* shared = rig.matrix("shared");
  Value* hidden = rig.b("linear", {rig.x, shared});
  hidden = rig.b("linear", {hidden, rig.matrix("between")});
  EXPECT_EQ(rig.gone_after_program({rig.b("linear", {hidden, shared})}), (Names{"between", "shared"}));
  EXPECT_EQ(rig.lender.packed_when_gone("shared"), rig.store.bytes());  // not after the first, with one form packed
}

// Packed for one operand, read in place for the other.
TEST(SourceRelease, AWeightThatIsAlsoTheActivationStays) {
  Rig rig;
  Value* both = rig.matrix("both");
  EXPECT_EQ(rig.gone_after_program({rig.b("linear", {both, both})}), Names{});
}

// Packed by one node, read in place by another, in either order.
TEST(SourceRelease, AWeightThatAnotherNodeReadsStays) {
  for (const bool first : {true, false}) {
    Rig rig;
    Value* w = rig.matrix("w");
    Value* plain = first ? rig.b("relu", {w}) : nullptr;
    Value* product = rig.b("linear", {rig.x, w});
    if (plain == nullptr) plain = rig.b("relu", {w});
    EXPECT_EQ(rig.gone_after_program({product, plain}), Names{});
  }
}

TEST(SourceRelease, AnOutputAndAViewStay) {
  Rig rig;
  Value* returned = rig.matrix("returned");
  Value* viewed = rig.matrix("viewed");
  Value* view = rig.b("transpose", {viewed}, {{"perm", std::vector<int64_t>{1, 0}}});
  Value* y = rig.b("linear", {rig.b("linear", {rig.x, returned}), viewed});
  EXPECT_EQ(rig.gone_after_program({y, returned, rig.b("relu", {view})}), Names{});
}

TEST(SourceRelease, WhatNothingUsesGoesFirst) {
  Rig rig;
  rig.matrix("unused");
  EXPECT_EQ(rig.gone_after_program({rig.b("linear", {rig.x, rig.matrix("w")})}), (Names{"unused", "w"}));
  EXPECT_EQ(rig.lender.packed_when_gone("unused"), 0u);
}

TEST(SourceRelease, OthersWhoHoldTheConstantKeepIt) {
  Rig rig;
  Value* w = rig.matrix("w");
  const ConstantRef held = w->constant();
  EXPECT_EQ(rig.gone_after_program({rig.b("linear", {rig.x, w})}), Names{});
  EXPECT_FALSE(held->absent());
}

}  // namespace
}  // namespace atb
