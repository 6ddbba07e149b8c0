// SPDX-License-Identifier: Apache-2.0
// atb-opt: graph text on standard input, passes by name, graph text on standard output.
//   atb-opt --pass canonicalize --pass pattern=SDPA < graph.txt
#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/log.h"
#include "ir/text.h"
#include "ir/verifier.h"
#include "passes/pipeline.h"
#include "passes/registry.h"

namespace atb {
namespace {

struct Options {
  std::vector<std::string> passes;
  bool pipeline = false;
  bool cache = true;
  bool report = false;
  bool help = false;
};

std::string usage() {
  std::string text =
      "usage: atb-opt [--pass NAME[=ARGUMENT]]... [--pipeline [--no-cache]] [--report] [--log LEVEL] < graph.txt\n"
      "passes:\n";
  for (const NamedPass& pass : PassRegistry::instance().all()) text += "  " + pass.name + ": " + pass.doc + "\n";
  return text;
}

Options parse_options(const std::vector<std::string>& args) {
  Options options;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    const auto value = [&]() -> const std::string& {
      require(i + 1 < args.size(), Code::kInvalidArgument, "[atb-opt] ", arg, " needs a value");
      return args[++i];
    };
    if (arg == "--pass") {
      options.passes.push_back(value());
    } else if (arg == "--pipeline") {
      options.pipeline = true;
    } else if (arg == "--no-cache") {
      options.cache = false;
    } else if (arg == "--report") {
      options.report = true;
    } else if (arg == "--log") {
      set_log_level(log_level_from_name(value()));
    } else if (arg == "--help" || arg == "-h") {
      options.help = true;
    } else {
      throw_error(Code::kInvalidArgument, "[atb-opt] unknown option ", arg, "; try --help");
    }
  }
  return options;
}

void run(const Options& options) {
  const std::string text{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  const std::unique_ptr<Graph> graph = parse_graph(text);
  verify(*graph, "parsing");
  MatchReport report;
  for (const std::string& pass : options.passes) PassRegistry::instance().run(pass, *graph, report);
  if (options.pipeline) {
    PipelineOptions pipeline;
    pipeline.cache = options.cache;
    pipeline.verify = true;
    report = optimize(*graph, pipeline);
  }
  std::cout << print(*graph);
  if (options.report) std::cout << report.text();
}

}  // namespace
}  // namespace atb

int main(int argc, char** argv) {
  try {
    const atb::Options options = atb::parse_options({argv + 1, argv + argc});
    if (options.help) {
      std::cout << atb::usage();
      return 0;
    }
    atb::run(options);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "atb-opt: %s\n", error.what());
    return 1;
  }
}
