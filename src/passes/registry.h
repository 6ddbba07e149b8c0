// SPDX-License-Identifier: Apache-2.0
// Passes by name, for atb-opt and tests: "canonicalize", "pattern=SDPA", "insert-kv-cache", ...
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "passes/engine/report.h"

namespace atb {

// A pass that can be asked for by name. `argument` is what follows "=" ("SDPA" in "pattern=SDPA"), empty without.
struct NamedPass {
  std::string name;
  std::string doc;
  std::function<void(Graph&, std::string_view argument, MatchReport& report)> run;
};

class PassRegistry {
 public:
  void add(NamedPass pass) { passes_.push_back(std::move(pass)); }
  const std::vector<NamedPass>& all() const { return passes_; }
  // Runs "name" or "name=argument" and verifies the graph. kNotFound, listing the names, for an unknown one.
  void run(std::string_view text, Graph& graph, MatchReport& report) const;
  // The passes of this layer; a program may add its own to a copy.
  static const PassRegistry& instance();

 private:
  std::vector<NamedPass> passes_;
};

}  // namespace atb
