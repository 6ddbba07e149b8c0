// SPDX-License-Identifier: Apache-2.0
// atb-bench-micro: the CPU kernel of every operator case at the sizes of models, beside what this machine can do at
// most, measured in the same run.
//   atb-bench-micro [--threads=N] [--benchmark_filter=REGEX] [--benchmark_min_time=SECONDS]
#include <benchmark/benchmark.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "core/error.h"
#include "kernel_bench.h"
#include "kernels/roofline.h"

namespace atb {
namespace {

// Counters: GB/s and GFLOP/s of the operator's own formulas, and their shares of the limits. Where copies are read in
// turn the share of the read limit tells; elsewhere operands may lie in a cache, beyond whose speed shares of 1 lie.
// Byte products (precision fast) may pass the limit of f32.
void run_call(benchmark::State& state, const testing::BenchCall& call, ThreadTeam& team, const Roofline& limit) {
  KernelBench bench(call, team);
  for (size_t i = 0; i < bench.copies(); ++i) bench.run();  // pages, scratch
  for ([[maybe_unused]] auto _ : state) bench.run();
  const auto runs = static_cast<double>(state.iterations());
  const auto rate = [&](double per_run) {
    return benchmark::Counter(runs * per_run, benchmark::Counter::kIsRate, benchmark::Counter::kIs1000);
  };
  state.counters["GB/s"] = rate(bench.bytes() * 1e-9);
  state.counters["GFLOP/s"] = rate(bench.flops() * 1e-9);
  state.counters["of_read"] = rate(bench.bytes() * 1e-9 / limit.read_gb_s);
  state.counters["of_flops"] = rate(bench.flops() * 1e-9 / limit.f32_gflop_s);
  state.SetLabel(bench.variant());
}

// Takes "--threads=N" out of the arguments; 0 where it is not there.
int take_threads(int& argc, char** argv) {
  constexpr std::string_view kOption = "--threads=";
  int threads = 0;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (!arg.starts_with(kOption)) {
      argv[kept++] = argv[i];
      continue;
    }
    const std::string_view value = arg.substr(kOption.size());
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), threads);
    require(error == std::errc() && end == value.data() + value.size(), Code::kInvalidArgument,
            "[bench] --threads=", value, " is no number");
  }
  argc = kept;
  return threads;
}

void run(int argc, char** argv) {
  ThreadTeam team(take_threads(argc, argv));
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) throw_error(Code::kInvalidArgument, "[bench] unknown option");
  const Roofline limit = measure_roofline(team);
  benchmark::AddCustomContext("read limit GB/s", std::to_string(limit.read_gb_s));
  benchmark::AddCustomContext("f32 limit GFLOP/s", std::to_string(limit.f32_gflop_s));
  benchmark::AddCustomContext("threads", std::to_string(limit.threads));
  benchmark::AddCustomContext("target", limit.target);
  for (const testing::SweptCase& swept : CaseRegistry::instance().all()) {
    for (const testing::BenchCall& call : swept.bench) {
      benchmark::RegisterBenchmark((swept.name + "/" + call.name).c_str(),
                                   [&](benchmark::State& state) { run_call(state, call, team, limit); })
          ->UseRealTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
}

}  // namespace
}  // namespace atb

int main(int argc, char** argv) {
  try {
    atb::run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "atb-bench-micro: %s\n", error.what());
    return 1;
  }
}
