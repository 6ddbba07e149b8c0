// SPDX-License-Identifier: Apache-2.0
// Trace: what is written is valid JSON with the recorded figures; off records nothing; full drops and counts.
#include "core/trace.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"

namespace atb {
namespace {

// The "X" events of a written trace, in order.
std::vector<nlohmann::json> events_of(const Trace& trace) {
  std::ostringstream out;
  trace.write(out);
  std::vector<nlohmann::json> events;
  const nlohmann::json document = nlohmann::json::parse(out.str());
  for (const auto& event : document.at("traceEvents")) {
    if (event.at("ph") == "X") events.push_back(event);
  }
  return events;
}

TEST(Trace, WritesWhatWasRecorded) {
  Trace trace;
  trace.enable();
  const uint32_t linear = trace.intern({"q", "kernel", "linear", "linear_f32_rows1/AVX2", 3});
  const uint32_t step = trace.intern({"step", "step", "", "", -1});
  EXPECT_EQ(trace.intern({"q", "kernel", "linear", "linear_f32_rows1/AVX2", 3}), linear);
  EXPECT_NE(step, linear);
  trace.record(linear, 5'000'000'001, 5'000'002'501, 1, 7);
  trace.record(step, 4'999'999'000, 5'000'003'000, 0);
  const auto events = events_of(trace);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_DOUBLE_EQ(events[0].at("ts").get<double>(), 0.0);  // worker 0 first
  EXPECT_TRUE(events[0].at("args").empty());
  EXPECT_EQ(events[1].at("name"), "q");
  EXPECT_EQ(events[1].at("cat"), "kernel");
  EXPECT_EQ(events[1].at("tid"), 1);
  EXPECT_DOUBLE_EQ(events[1].at("ts").get<double>(), 1.001);  // from the earliest begin, in microseconds
  EXPECT_DOUBLE_EQ(events[1].at("dur").get<double>(), 2.5);
  EXPECT_EQ(events[1].at("args"),
            nlohmann::json({{"layer", 3}, {"op", "linear"}, {"variant", "linear_f32_rows1/AVX2"}, {"rows", 7}}));
}

TEST(Trace, EventsComeByWorkerAndTimeTheEnclosingOneFirst) {
  Trace trace;
  trace.enable();
  const uint32_t inner = trace.intern({"inner", "node"}), outer = trace.intern({"outer", "step"});
  trace.record(inner, 30, 40, 1);
  trace.record(inner, 20, 25, 0);
  trace.record(inner, 10, 15, 0);
  trace.record(outer, 10, 50, 0);  // recorded when it ends, as a step is
  std::vector<std::string> order;
  for (const auto& event : events_of(trace)) order.push_back(event.at("name").get<std::string>());
  EXPECT_EQ(order, (std::vector<std::string>{"outer", "inner", "inner", "inner"}));
  EXPECT_EQ(trace.events()[1].begin_ns, 10);
  EXPECT_EQ(trace.events()[3].worker, 1);
}

TEST(Trace, AnArrowLeadsFromTheLaunchToEveryWorkerThatWakes) {
  Trace trace;
  trace.enable();
  const uint32_t wake = trace.intern({"wake-up", "wake"});
  trace.record(wake, 100, 300, 1);
  trace.record(wake, 100, 400, 2);
  std::ostringstream out;
  trace.write(out);
  std::map<int, std::vector<std::pair<std::string, int>>> arrows;  // by id: end and thread
  const nlohmann::json document = nlohmann::json::parse(out.str());
  for (const auto& event : document.at("traceEvents")) {
    if (event.at("ph") == "s" || event.at("ph") == "f") {
      arrows[event.at("id").get<int>()].emplace_back(event.at("ph").get<std::string>(), event.at("tid").get<int>());
      EXPECT_DOUBLE_EQ(event.at("ts").get<double>(), 0.0);
    }
  }
  ASSERT_EQ(arrows.size(), 2u);
  EXPECT_EQ(arrows[0], (std::vector<std::pair<std::string, int>>{{"s", 0}, {"f", 1}}));
  EXPECT_EQ(arrows[1], (std::vector<std::pair<std::string, int>>{{"s", 0}, {"f", 2}}));
}

TEST(Trace, OddNamesStayValidJson) {
  Trace trace;
  trace.enable();
  trace.record(trace.intern({"a\"b\\c\n\x01", "k", "", std::string("\xff\xfe"), -1}), 0, 1, 0);
  const auto events = events_of(trace);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].at("name"), "a\"b\\c\n\x01");
  EXPECT_EQ(events[0].at("args").at("variant"), "\uFFFD\uFFFD");
}

TEST(Trace, OffRecordsNothingAndEmptyIsValid) {
  Trace trace;
  trace.record(trace.intern({"x", "k", "", "", -1}), 0, 1, 0);
  EXPECT_EQ(trace.size(), 0u);
  EXPECT_TRUE(events_of(trace).empty());
  trace.enable();
  trace.disable();
  trace.record(0, 0, 1, 0);
  EXPECT_EQ(trace.size(), 0u);
}

TEST(Trace, FullDropsAndCountsAndClearStartsAnew) {
  Trace trace(3);
  trace.enable();
  const uint32_t label = trace.intern({"x", "k", "", "", -1});
  for (int i = 0; i < 5; ++i) trace.record(label, i, i + 1, 0);
  EXPECT_EQ(trace.size(), 3u);
  EXPECT_EQ(trace.dropped(), 2u);
  EXPECT_EQ(events_of(trace).size(), 3u);
  trace.clear();
  EXPECT_EQ(trace.size(), 0u);
  EXPECT_EQ(trace.dropped(), 0u);
}

TEST(Trace, ThreadsRecordAtOnce) {
  Trace trace;
  trace.enable();
  const uint32_t label = trace.intern({"x", "k", "", "", -1});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 1000; ++i) trace.record(label, i, i + 1, t, i);
    });
  }
  for (auto& thread : threads) thread.join();
  std::set<std::pair<int, int>> seen;
  for (const auto& event : events_of(trace)) {
    seen.emplace(event.at("tid").get<int>(), event.at("args").at("rows").get<int>());
  }
  EXPECT_EQ(seen.size(), 4000u);
}

TEST(Trace, SaveIntoNowhereIsAnError) {
  try {
    Trace().save("/nonexistent-directory/trace.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kNotFound);
  }
}

}  // namespace
}  // namespace atb
