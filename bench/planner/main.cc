// SPDX-License-Identifier: Apache-2.0
// atb-bench-planner [FOLDER]: arena bytes against their lower bound, for the instances (*.csv) of a folder, where there
// is one, and for the step graphs of known models, whose shapes need no weights. Prints a Markdown table.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "models/model.h"
#include "passes/assign_buffers.h"
#include "passes/pipeline.h"
#include "passes/plan_memory.h"
#include "passes/planner_instance.h"
#include "passes/schedule.h"

namespace atb {
namespace {

struct Row {
  std::string instance;
  int64_t buffers = 0;
  int64_t bytes = 0;
  int64_t lower_bound = 0;
  double seconds = 0;  // of the fastest of kRepeats
};

constexpr int kRepeats = 3;

template <typename Work>
double fastest(Work work) {
  double best = 0;
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = i == 0 ? taken.count() : std::min(best, taken.count());
  }
  return best;
}

void print(const Row& row) {
  const double ratio =
      row.lower_bound == 0 ? 1.0 : static_cast<double>(row.bytes) / static_cast<double>(row.lower_bound);
  std::printf("| %s | %lld | %lld | %lld | %.4f | %.1f |\n", row.instance.c_str(), static_cast<long long>(row.buffers),
              static_cast<long long>(row.bytes), static_cast<long long>(row.lower_bound), ratio, row.seconds * 1e3);
  std::fflush(stdout);
}

Row plan_instance(const std::filesystem::path& path) {
  const std::vector<PlannedBuffer> buffers = test::read_planner_instance(path);
  MemoryPlan plan;
  const double seconds = fastest([&] { plan = plan_memory(buffers); });
  return {path.stem().string(), static_cast<int64_t>(buffers.size()), plan.total, plan.lower_bound, seconds};
}

void print_instances(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".csv") paths.push_back(entry.path());
  }
  if (error || paths.empty()) std::cerr << "[planner] no instances (*.csv) in " << folder << ": left out\n";
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) print(plan_instance(path));
}

// Shapes as the models' config.json gives them.
ModelConfig llama(int64_t vocab, int64_t hidden, int64_t layers, int64_t heads, int64_t kv_heads, int64_t ff) {
  ModelConfig config;
  config.family = "llama";
  config.vocab_size = vocab;
  config.hidden_size = hidden;
  config.layers = layers;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.head_dim = hidden / heads;
  config.intermediate_size = ff;
  config.norm_eps = 1e-5;
  config.rope.rotary_dim = config.head_dim;
  config.activation = "silu";
  config.context_length = 4096;
  return config;
}

struct Model {
  const char* name;
  ModelConfig config;
};

void print_model(const Model& model) {
  const std::unique_ptr<Graph> graph = build_graph(model.config);
  optimize(*graph);
  const Schedule order = schedule(*graph);
  for (const int64_t rows : {1, 8, 512, 2048}) {
    BufferPlan plan;
    const Bindings largest = {{"T", rows}, {"L", std::min<int64_t>(rows, 8)}};
    const double seconds = fastest([&] { plan = assign_buffers(*graph, order, largest); });
    print({std::string(model.name) + ", " + std::to_string(rows) + (rows == 1 ? " row" : " rows"), plan.num_buffers,
           plan.arena_bytes, plan.lower_bound_bytes, seconds});
  }
}

void run(const std::string& folder) {
  std::puts("| instance | buffers | bytes | lower bound | ratio | ms |\n| --- | --- | --- | --- | --- | --- |");
  if (!folder.empty()) print_instances(folder);
  const std::vector<Model> models = {{"tiny llama", llama(160, 64, 2, 4, 2, 96)},
                                     {"SmolLM2-135M", llama(49152, 576, 30, 9, 3, 1536)},
                                     {"Llama-2-7B", llama(32000, 4096, 32, 32, 32, 11008)}};
  for (const Model& model : models) print_model(model);
}

}  // namespace
}  // namespace atb

int main(int argc, char** argv) {
  try {
    atb::run(argc > 1 ? argv[1] : "");
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
