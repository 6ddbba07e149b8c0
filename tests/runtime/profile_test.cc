// SPDX-License-Identifier: Apache-2.0
// The profile of a made-up trace with known figures, and that of an engine.
#include "runtime/profile.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "runtime/generate/engine.h"
#include "runtime/step_fixture.h"

namespace atb {
namespace {

constexpr int64_t kUs = 1000;  // in ns

// Two decode steps of 100 us with 20 us between them; each runs two nodes of two layers on two workers.
class MadeUpTrace : public ::testing::Test {
 protected:
  void SetUp() override {
    trace_.enable();
    for (const int64_t start : {int64_t{0}, 120 * kUs}) add_step(start);
  }

  void add(const TraceLabel& label, int64_t begin_us, int64_t end_us, int worker, int64_t rows = -1) {
    trace_.record(trace_.intern(label), start_ + begin_us * kUs, start_ + end_us * kUs, worker, rows);
  }

  void add_step(int64_t start) {
    start_ = start;
    add({start == 0 ? "wake-up from park" : "wake-up", "wake"}, 5, 11, 1);
    for (int layer = 0; layer < 2; ++layer) {
      const std::string name = "layers." + std::to_string(layer) + ".down";
      const int64_t at = 10 + 30 * layer;
      add({name, "node", "linear", "linear/rows1", layer}, at, at + 20, 0, 1);
      add({name, "node", "linear", "linear/rows1", layer}, at + 2, at + 25, 1, 1);
      add({"wait for " + name, "wait", "", "", layer}, at + 20, at + 25, 0);
    }
    add({"last worker", "wait"}, 70, 72, 0);
    add({"sample", "sample"}, 80, 90, 0);
    add({"decode", "step"}, 0, 100, 0, 1);
  }

  Trace trace_;
  int64_t start_ = 0;
};

TEST_F(MadeUpTrace, RowsWaitsAndTheRestSumUpToTheWall) {
  const std::vector<PhaseProfile> phases = profile(trace_);
  ASSERT_EQ(phases.size(), 1u);
  const PhaseProfile& decode = phases[0];
  EXPECT_EQ(decode.name, "decode");
  EXPECT_EQ(decode.steps, 2);
  EXPECT_EQ(decode.tokens, 2);
  EXPECT_DOUBLE_EQ(decode.wall_us, 220);
  ASSERT_EQ(decode.rows.size(), 1u);
  const ProfileRow& down = decode.rows[0];
  EXPECT_EQ(down.name, "layers.*.down");
  EXPECT_EQ(down.op, "linear");
  EXPECT_EQ(down.variant, "linear/rows1");
  EXPECT_EQ(down.count, 4);  // not 8: two workers share each
  EXPECT_DOUBLE_EQ(down.wall_us, 80);
  EXPECT_DOUBLE_EQ(down.worker_us, 80 + 92);
  EXPECT_DOUBLE_EQ(down.wait_us, 20);
  EXPECT_EQ(decode.waits, 6);
  EXPECT_DOUBLE_EQ(decode.wait_us, 24);
  EXPECT_EQ(decode.wakeups, 2);
  EXPECT_EQ(decode.wakeups_from_park, 1);
  EXPECT_DOUBLE_EQ(decode.wakeup_us, 12);
  EXPECT_DOUBLE_EQ(decode.sampling_us, 20);
  EXPECT_DOUBLE_EQ(decode.between_us, 20);
  EXPECT_DOUBLE_EQ(decode.rest_us, 220 - 80 - 24 - 20 - 20);
}

TEST_F(MadeUpTrace, EachNodeHasARowIfAsked) {
  const std::vector<PhaseProfile> phases = profile(trace_, true);
  ASSERT_EQ(phases[0].rows.size(), 2u);
  EXPECT_EQ(phases[0].rows[1].name, "layers.1.down");
  EXPECT_EQ(phases[0].rows[1].count, 2);
}

// Nodes that a pattern made bear a number of their own.
TEST_F(MadeUpTrace, LikeNodesWithoutALayerInTheirNamesShareARow) {
  start_ = 240 * kUs;
  add({"attention", "node", "flash_attention", "tile", 0}, 10, 20, 0);
  add({"attention_1", "node", "flash_attention", "tile", 1}, 20, 30, 0);
  add({"head_2", "node", "linear", "linear/rows1"}, 30, 40, 0);
  add({"decode", "step"}, 0, 100, 0, 1);
  const std::vector<ProfileRow> rows = profile(trace_)[0].rows;
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1].name, "layers.*.attention");
  EXPECT_EQ(rows[1].count, 2);
  EXPECT_EQ(rows[2].name, "head_2");
}

TEST_F(MadeUpTrace, EventsOutsideOfWholeStepsAreLeftOut) {
  start_ = 400 * kUs;
  add({"layers.0.down", "node", "linear", "linear/rows1", 0}, 0, 10, 0, 1);  // its step did not fit
  EXPECT_EQ(profile(trace_)[0].rows[0].count, 4);
  EXPECT_TRUE(profile(Trace()).empty());
}

TEST_F(MadeUpTrace, AsJson) {
  const nlohmann::json json = nlohmann::json::parse(profile_json(trace_));
  EXPECT_EQ(json.at("dropped_events"), 0);
  const nlohmann::json& decode = json.at("decode");
  EXPECT_DOUBLE_EQ(decode.at("total_ms").get<double>(), 0.22);
  EXPECT_DOUBLE_EQ(decode.at("nodes")[0].at("mean_us").get<double>(), 20);
  double shares = decode.at("waits").at("share").get<double>() + decode.at("elsewhere").at("share").get<double>();
  for (const auto& node : decode.at("nodes")) shares += node.at("share").get<double>();
  EXPECT_NEAR(shares, 1, 1e-12);
}

// Every executed node of the graph has its row, once a step, however many workers there are.
TEST(Profile, CountsTheNodesOfAnEngine) {
  for (const int threads : {1, 3}) {
    EngineOptions options;
    options.session.threads = threads;
    options.context_length = 64;
    options.prefill_chunk = 16;
    Engine engine(test::step_graph(), find_device("cpu"), options);
    EXPECT_THROW(engine.profile_json(), Error);
    engine.start_trace();
    SamplingParams params;
    params.max_new_tokens = 4;
    const Engine::RequestId id = engine.submit(test::some_ids(20, 1), params);
    while (engine.next(id).finished == FinishReason::kNone) {
    }
    const nlohmann::json json = nlohmann::json::parse(engine.profile_json(true));
    EXPECT_EQ(json.at("prefill").at("tokens"), 20);
    const nlohmann::json& decode = json.at("decode");
    EXPECT_EQ(decode.at("steps"), 3);
    std::set<std::string> seen;
    for (const auto& node : decode.at("nodes")) {
      EXPECT_EQ(node.at("count"), 3) << node;
      seen.insert(node.at("name").get<std::string>());
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), schedule(engine.graph()).num_nodes());
    EXPECT_GE(decode.at("elsewhere").at("total_ms").get<double>(), 0);
    EXPECT_EQ(decode.at("wakeups").at("count"), 3 * (threads - 1));
  }
}

}  // namespace
}  // namespace atb
