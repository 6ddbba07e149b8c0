// SPDX-License-Identifier: Apache-2.0
// Batching, equal bits, cancelling, limits and forks of the engine.
#include "runtime/generate/engine.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "core/error.h"
#include "devices/device.h"
#include "runtime/step_fixture.h"

namespace atb {
namespace {

EngineOptions options(int threads = 2, int64_t prefill_chunk = 0) {
  EngineOptions options;
  options.session.threads = threads;
  options.context_length = 400;
  options.prefill_chunk = prefill_chunk;
  options.kv_tokens = 4000;
  return options;
}

std::unique_ptr<Engine> make_engine(const EngineOptions& engine_options = options(),
                                    const PipelineOptions& pipeline = {}) {
  return std::make_unique<Engine>(test::step_graph(pipeline), find_device("cpu"), engine_options);
}

using Logits = std::vector<std::vector<float>>;

Logits logits_of(Engine& engine, const std::vector<std::vector<int32_t>>& sequences) {
  Logits result;
  for (const auto& ids : sequences) result.emplace_back(ids.size() * static_cast<size_t>(engine.vocab()));
  engine.logits(sequences, [&](int64_t s, int64_t first, int64_t rows, const float* values) {
    std::copy(values, values + rows * engine.vocab(), result[static_cast<size_t>(s)].begin() + first * engine.vocab());
  });
  return result;
}

std::vector<int32_t> generate(Engine& engine, std::vector<int32_t> prompt, const SamplingParams& params,
                              uint64_t stream = 0) {
  const Engine::RequestId id = engine.submit(std::move(prompt), params, stream);
  std::vector<int32_t> tokens;
  for (;;) {
    const Progress progress = engine.next(id);
    tokens.insert(tokens.end(), progress.tokens.begin(), progress.tokens.end());
    if (progress.finished != FinishReason::kNone) break;
  }
  engine.release(id);
  return tokens;
}

void expect_near(const std::vector<float>& actual, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], tolerance) << "at " << i;
}

TEST(Engine, LogitsEqualTheOracle) {
  const auto engine = make_engine();
  for (int64_t length : {1, 2, 17, 300}) {
    const auto ids = test::some_ids(length, 3);
    expect_near(logits_of(*engine, {ids})[0], test::oracle_logits(ids), 1e-3);
  }
}

TEST(Engine, PlainOperatorsWithoutFusionGiveTheSameNumbers) {
  PipelineOptions pipeline;
  pipeline.disabled_patterns = {"QKV+RoPE", "GateUp", "AddNorm", "RoPE+KV"};
  const auto ids = test::some_ids(20, 3);
  expect_near(logits_of(*make_engine(options(), pipeline), {ids})[0], test::oracle_logits(ids), 1e-3);
}

TEST(Engine, BitsDoNotDependOnChunksThreadsOrNeighbours) {
  const std::vector<std::vector<int32_t>> sequences = {test::some_ids(300, 1), test::some_ids(3, 2),
                                                       test::some_ids(129, 3), test::some_ids(1, 4),
                                                       test::some_ids(64, 5)};
  Logits expected;
  {
    const auto engine = make_engine(options(1, 1000));
    for (const auto& ids : sequences) expected.push_back(logits_of(*engine, {ids})[0]);
  }
  for (int threads : {1, 2, 3}) {
    for (int64_t chunk : {1, 7, 64, 1000}) {
      const auto engine = make_engine(options(threads, chunk));
      EXPECT_EQ(logits_of(*engine, sequences), expected) << threads << " threads, chunks of " << chunk;
      EXPECT_EQ(logits_of(*engine, {sequences[2]})[0], expected[2]) << threads << " threads, chunks of " << chunk;
    }
  }
}

TEST(Engine, GreedyTokensFollowTheLogits) {
  const auto engine = make_engine();
  const auto prompt = test::some_ids(9, 6);
  const auto tokens = generate(*engine, prompt, {.max_new_tokens = 12});
  ASSERT_EQ(tokens.size(), 12u);
  std::vector<int32_t> all = prompt;
  all.insert(all.end(), tokens.begin(), tokens.end());
  const auto logits = logits_of(*engine, {all})[0];
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto row = logits.begin() + static_cast<int64_t>(prompt.size() + i - 1) * engine->vocab();
    EXPECT_EQ(tokens[i], std::max_element(row, row + engine->vocab()) - row);
  }
}

TEST(Engine, SampledTokensDoNotDependOnNeighbours) {
  SamplingParams params{.temperature = 1.0, .top_k = 20, .top_p = 0.95, .seed = 11, .max_new_tokens = 30};
  const auto alone = generate(*make_engine(), test::some_ids(5, 1), params);
  const auto engine = make_engine();
  std::vector<Engine::RequestId> others;
  for (uint64_t i = 0; i < 4; ++i) others.push_back(engine->submit(test::some_ids(20, i), {.temperature = 2.0}));
  EXPECT_EQ(generate(*engine, test::some_ids(5, 1), params), alone);
  for (auto id : others) engine->release(id);
  params.seed = 12;
  EXPECT_NE(generate(*engine, test::some_ids(5, 1), params), alone);
}

TEST(Engine, FourThreadsGetWhatEachGetsAlone) {
  const auto engine = make_engine();
  std::vector<std::vector<int32_t>> alone, together(4);
  for (uint64_t i = 0; i < 4; ++i) alone.push_back(generate(*engine, test::some_ids(10, i), {.max_new_tokens = 25}));
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { together[i] = generate(*engine, test::some_ids(10, i), {.max_new_tokens = 25}); });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(together, alone);
  EXPECT_EQ(engine->stats().kv_blocks_in_use, 0);
}

TEST(Engine, StopTokenEndsARequestAndIsNotPartOfIt) {
  const auto engine = make_engine();
  const auto free = generate(*engine, test::some_ids(9, 6), {.max_new_tokens = 12});
  SamplingParams params{.max_new_tokens = 12};
  params.stop_token_ids = {free[4], 28};
  const auto first = std::find(free.begin(), free.end(), free[4]);
  EXPECT_EQ(generate(*engine, test::some_ids(9, 6), params), std::vector<int32_t>(free.begin(), first));
}

TEST(Engine, CancellingReturnsEveryBlock) {
  const auto engine = make_engine(options(2, 8));
  for (int steps = 0; steps < 4; ++steps) {
    const auto id = engine->submit(test::some_ids(30, 1), {.max_new_tokens = 100});
    for (int i = 0; i < steps; ++i) engine->next(id);
    engine->cancel(id);
    EXPECT_EQ(engine->stats().kv_blocks_in_use, 0);
    EXPECT_EQ(engine->next(id).finished, FinishReason::kCancelled);
    engine->release(id);
    engine->release(id);
  }
  EXPECT_EQ(engine->stats().requests, 0);
}

TEST(Engine, CancellingFromAnotherThreadEndsNext) {
  const auto engine = make_engine();
  const auto id = engine->submit(test::some_ids(30, 1), {.max_new_tokens = 300});
  std::thread canceller([&] { engine->cancel(id); });
  while (engine->next(id).finished == FinishReason::kNone) {
  }
  canceller.join();
  EXPECT_EQ(engine->stats().kv_blocks_in_use, 0);
}

TEST(Engine, RequestsWaitForTheCacheAndAllFinish) {
  EngineOptions small = options();
  small.kv_tokens = 64;
  const auto engine = make_engine(small);
  const auto expected = generate(*make_engine(), test::some_ids(20, 2), {.max_new_tokens = 20});
  std::vector<Engine::RequestId> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(engine->submit(test::some_ids(20, 2), {.max_new_tokens = 20}));
  for (auto id : ids) {
    std::vector<int32_t> tokens;
    for (Progress progress; progress.finished == FinishReason::kNone;) {
      progress = engine->next(id);
      tokens.insert(tokens.end(), progress.tokens.begin(), progress.tokens.end());
    }
    EXPECT_EQ(tokens, expected);
  }
  EXPECT_THROW(engine->submit(test::some_ids(60, 2), {.max_new_tokens = 20}), Error);
}

TEST(Engine, ACacheBeyondTheMemoryIsRefused) {
  EngineOptions huge = options();
  for (int64_t tokens : {int64_t{-1}, int64_t{1} << 38, int64_t{1} << 60}) {
    huge.kv_tokens = tokens;
    EXPECT_THROW(make_engine(huge), Error) << tokens;
  }
}

TEST(Engine, ContextLimitsPromptAndNewTokens) {
  const auto engine = make_engine();
  EXPECT_EQ(generate(*engine, test::some_ids(399, 1), {.max_new_tokens = 50}).size(), 2u);
  EXPECT_EQ(generate(*engine, test::some_ids(400, 1), {.max_new_tokens = 50}).size(), 1u);
  EXPECT_TRUE(generate(*engine, test::some_ids(4, 1), {.max_new_tokens = 0}).empty());
  try {
    engine->submit(test::some_ids(401, 1), {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("401"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("400"), std::string::npos);
  }
}

TEST(Engine, BadPromptsAreRefused) {
  const auto engine = make_engine();
  EXPECT_THROW(engine->submit({}, {}), Error);
  EXPECT_THROW(engine->submit({-1}, {}), Error);
  EXPECT_THROW(engine->submit({29}, {}), Error);
  EXPECT_THROW(engine->submit({1}, {.temperature = -1}), Error);
  EXPECT_THROW(engine->next(99), Error);
  EXPECT_EQ(engine->stats().requests, 0);
}

TEST(Engine, ForkedChildRaisesAtOnce) {
  const auto engine = make_engine();
  generate(*engine, {1, 2, 3}, {.max_new_tokens = 3});
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    try {
      engine->submit({1}, {});
    } catch (const Error& error) {
      _exit(error.code() == Code::kFailedPrecondition ? 0 : 1);
    }
    _exit(2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Nodes of layer 1 that have events: one on the track of each worker that takes part, beside those of waiting.
std::set<std::string> traced_nodes(const nlohmann::json& trace) {
  std::set<std::string> names;
  for (const auto& event : trace.at("traceEvents")) {
    const auto args = event.value("args", nlohmann::json::object());
    if (args.value("layer", -1) == 1 && args.contains("op")) names.insert(event.at("name"));
  }
  return names;
}

TEST(Engine, TraceHasEveryNodeAndNamesTheKernels) {
  const auto engine = make_engine();
  const std::string path = ::testing::TempDir() + "/engine_trace.json";
  engine->start_trace();
  logits_of(*engine, {test::some_ids(40, 1)});
  engine->write_trace(path);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const std::string trace = text.str();
  EXPECT_EQ(traced_nodes(nlohmann::json::parse(trace)).size(), 8u);
  EXPECT_NE(trace.find("flash_attention_kv"), std::string::npos);
  EXPECT_THROW(engine->write_trace(path), Error);
}

}  // namespace
}  // namespace atb
