// SPDX-License-Identifier: Apache-2.0
// Memory planning instances as the public collections write them: lines of `id,lower,upper,size`, upper exclusive.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "passes/plan_memory.h"

namespace atb::test {

// kNotFound for a file that does not open, kDataLoss naming the first line that is not four integers.
inline std::vector<PlannedBuffer> read_planner_instance(const std::filesystem::path& path) {
  std::ifstream in(path);
  require(in.good(), Code::kNotFound, "[planner] cannot open ", path.string());
  std::string line;
  std::getline(in, line);
  require(line.substr(0, 19) == "id,lower,upper,size", Code::kDataLoss, "[planner] ", path.string(), " begins with \"",
          line.substr(0, 40), "\", expected id,lower,upper,size");
  std::vector<PlannedBuffer> buffers;
  while (std::getline(in, line)) {
    if (line.empty() || line == "\r") continue;
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream fields(line);
    PlannedBuffer& buffer = buffers.emplace_back();
    require(static_cast<bool>(fields >> buffer.id >> buffer.lower >> buffer.upper >> buffer.size), Code::kDataLoss,
            "[planner] ", path.string(), ": \"", line.substr(0, 80), "\" is not four integers");
  }
  return buffers;
}

}  // namespace atb::test
