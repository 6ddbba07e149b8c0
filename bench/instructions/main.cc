// SPDX-License-Identifier: Apache-2.0
// atb-instructions NAME: runs one fixed piece of work on one thread, the part to be counted inside `atb_counted`.
// check.py runs it under callgrind and compares the counts, which repeat, where seconds do not.
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
#include "kernel_bench.h"
#include "passes/pipeline.h"
#include "passes/tiny_llama.h"
#include "runtime/session.h"

// What callgrind counts (--toggle-collect=atb_counted). C linkage and never inlined, so that the name is there.
extern "C" [[gnu::noinline]] void atb_counted(const std::function<void()>& work) { work(); }

namespace atb {
namespace {

using testing::OpCase;
using testing::random_values;

testing::Operand input(std::vector<int64_t> shape, uint32_t seed) {
  const int64_t count = testing::count_of(shape);
  return testing::activation(std::move(shape), random_values(count, seed));
}

// Runs a call twice, the second time counted: the first pays for scratch and pages.
void count_call(const OpCase& test) {
  ThreadTeam team(1);
  KernelBench bench({.name = test.op, .make = [&] { return test; }}, team);
  bench.run();
  atb_counted([&] { bench.run(); });
}

void count_linear(int64_t rows, const char* format, Precision precision) {
  count_call({.op = "linear",
              .inputs = {input({rows, 512}, 5), testing::weight_as(format, {256, 512}, random_values(256 * 512, 3))},
              .precision = precision});
}

void count_attention() {
  count_call(
      {.op = "flash_attention",
       .inputs = {input({1, 64, 6, 64}, 5), input({1, 64, 2, 64}, 6), input({1, 64, 2, 64}, 7), testing::no_operand()},
       .attrs = {{"scale", 0.125}, {"causal", true}}});
}

void count_add_norm() {
  count_call({.op = "fused_add_norm",
              .inputs = {input({32, 576}, 5), input({32, 576}, 6), testing::weight({576}, random_values(576, 4))},
              .attrs = {{"eps", 1e-5}, {"kind", std::string("rms")}}});
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
      {"linear_f32_rows1", [] { count_linear(1, "f32", Precision::kExact); }},
      {"linear_f32_rows64", [] { count_linear(64, "f32", Precision::kExact); }},
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
