// SPDX-License-Identifier: Apache-2.0
// atb-instructions NAME: runs one fixed piece of work on one thread, the part to be counted inside `atb_counted`.
// check.py runs it under callgrind and compares the counts, which repeat, where seconds do not.
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/memory.h"
#include "core/thread_team.h"
#include "devices/device.h"
#include "ir/builder.h"
#include "passes/pipeline.h"
#include "passes/tiny_llama.h"
#include "runtime/executor.h"
#include "runtime/plan.h"
#include "runtime/session.h"

// What callgrind counts (--toggle-collect=atb_counted). C linkage and never inlined, so that the name is there.
extern "C" [[gnu::noinline]] void atb_counted(const std::function<void()>& work) { work(); }

namespace atb {
namespace {

using test::Random;

ConstantRef weight(int64_t rows, int64_t columns, const char* encoding_name) {
  const std::vector<float> values = Random(3).vector(rows * columns, 0.5f);
  if (encoding_name == nullptr) return Constant::from_f32("w", {rows, columns}, values);
  const Encoding* encoding = find_encoding(encoding_name);
  const int64_t blocks = rows * columns / encoding->block_elems;
  std::vector<std::byte> bytes(static_cast<size_t>(blocks * encoding->block_bytes));
  encoding->encode(values.data(), blocks, bytes.data());
  return Constant::from_storage("w", DType::kF32, encoding, {rows, columns}, storage_from_bytes(std::move(bytes)), 0);
}

// Runs the graph of one node twice, the second time counted: the first pays for scratch and pages.
void count_graph(std::unique_ptr<Graph> graph, Precision precision) {
  PackedStore store;
  const Program program(std::move(graph), find_device("cpu"), store, {.precision = precision});
  const Plan plan(program, {});
  std::vector<std::vector<float>> inputs;
  std::vector<std::vector<float>> outputs;
  std::vector<std::byte*> input_memory;
  std::vector<std::byte*> output_memory;
  const auto elements = [](const Value* value) {
    int64_t count = 1;
    for (const Dim& dim : value->shape()) count *= dim.constant();
    return count;
  };
  for (const Value* input : program.graph().inputs()) {
    inputs.push_back(Random(inputs.size() + 5).vector(elements(input), 1));
    input_memory.push_back(reinterpret_cast<std::byte*>(inputs.back().data()));
  }
  for (const Value* output : program.graph().outputs()) {
    outputs.emplace_back(static_cast<size_t>(elements(output)));
    output_memory.push_back(reinterpret_cast<std::byte*>(outputs.back().data()));
  }
  AlignedBuffer arena(plan.arena_bytes());
  Frame frame = plan.resolve({}, input_memory, output_memory, arena.data());
  ThreadTeam team(1);
  Executor executor(team);
  executor.run(program, frame, {});
  atb_counted([&] { executor.run(program, frame, {}); });
}

void count_linear(int64_t rows, const char* encoding, Precision precision) {
  auto graph = std::make_unique<Graph>("linear");
  Builder b(*graph);
  Value* x = graph->add_input("x", {DType::kF32, {rows, 512}});
  graph->set_outputs({b("linear", {x, b.constant(weight(256, 512, encoding))}, {}, "y")}, {"y"});
  count_graph(std::move(graph), precision);
}

void count_attention() {
  auto graph = std::make_unique<Graph>("attention");
  Builder b(*graph);
  Value* q = graph->add_input("q", {DType::kF32, {1, 64, 6, 64}});
  Value* k = graph->add_input("k", {DType::kF32, {1, 64, 2, 64}});
  Value* v = graph->add_input("v", {DType::kF32, {1, 64, 2, 64}});
  const Attrs attrs = {{"scale", 0.125}, {"causal", true}};
  graph->set_outputs({b("flash_attention", {q, k, v, nullptr}, attrs, "y")}, {"y"});
  count_graph(std::move(graph), Precision::kExact);
}

void count_add_norm() {
  auto graph = std::make_unique<Graph>("add_norm");
  Builder b(*graph);
  Value* residual = graph->add_input("residual", {DType::kF32, {32, 576}});
  Value* x = graph->add_input("x", {DType::kF32, {32, 576}});
  Value* w = b.constant(Constant::from_f32("w", {576}, Random(4).vector(576, 1)));
  const Attrs attrs = {{"eps", 1e-5}, {"kind", std::string("rms")}};
  graph->set_outputs(b.node("fused_add_norm", {residual, x, w}, attrs, "y")->outputs(), {"y", "sum"});
  count_graph(std::move(graph), Precision::kExact);
}

// One token after a prompt of 100, of a decoder of four layers; 136 positions of KV blocks.
void count_decode_step() {
  const test::TinyConfig config{
      .layers = 4, .hidden = 128, .ff = 384, .vocab = 512, .heads = 8, .kv_heads = 2, .head_dim = 16, .rotary_dim = 16};
  std::unique_ptr<Graph> graph = test::TinyLlama(config).build();
  optimize(*graph);
  Session session(std::move(graph), find_device("cpu"), {.threads = 1});
  const KvLayout& kv = session.kv_layout();
  const size_t num_blocks = 5;
  AlignedBuffer memory(num_blocks * kv.block_bytes());
  std::vector<std::byte*> blocks;
  for (size_t i = 0; i < num_blocks; ++i) blocks.push_back(memory.data() + i * kv.block_bytes());
  const auto step = [&](int32_t past, int32_t rows) {
    StepInput input;
    for (int32_t i = 0; i < rows; ++i) {
      input.ids.push_back((past + i) * 7 % 512);
      input.positions.push_back(past + i);
    }
    input.logit_rows = {rows - 1};
    input.sequences = {{.row_begin = 0, .rows = rows, .past = past, .blocks = blocks.data()}};
    return input;
  };
  session.run(step(0, 100));
  session.run(step(100, 1));
  const StepInput input = step(101, 1);
  atb_counted([&] { session.run(input); });
}

const std::map<std::string, std::function<void()>>& works() {
  static const std::map<std::string, std::function<void()>> all = {
      {"linear_f32_rows1", [] { count_linear(1, nullptr, Precision::kExact); }},
      {"linear_f32_rows64", [] { count_linear(64, nullptr, Precision::kExact); }},
      {"linear_q4_1_fast_rows1", [] { count_linear(1, "q4_1", Precision::kFast); }},
      {"linear_q8_0_fast_rows64", [] { count_linear(64, "q8_0", Precision::kFast); }},
      {"flash_attention_rows64", count_attention},
      {"fused_add_norm_rows32", count_add_norm},
      {"decode_step", count_decode_step},
  };
  return all;
}

int run(const std::string& name) {
  if (name == "--list") {
    for (const auto& [work, unused] : works()) std::cout << work << '\n';
    return 0;
  }
  const auto found = works().find(name);
  if (found == works().end()) {
    std::cerr << "[atb-instructions] unknown work '" << name << "'; --list names them\n";
    return 2;
  }
  found->second();
  return 0;
}

}  // namespace
}  // namespace atb

int main(int argc, char** argv) {
  try {
    return atb::run(argc == 2 ? argv[1] : "");
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
