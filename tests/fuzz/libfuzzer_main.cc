// SPDX-License-Identifier: Apache-2.0
// libFuzzer's entry points for one target. `--write_seeds=DIR` writes the target's seeds to files and ends.
#include <fstream>
#include <string>

#include "fuzz/target.h"

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  constexpr std::string_view kWriteSeeds = "--write_seeds=";
  for (int i = 1; i < *count; ++i) {
    const std::string argument = (*arguments)[i];
    if (!argument.starts_with(kWriteSeeds)) continue;
    const std::string directory = argument.substr(kWriteSeeds.size());
    int number = 0;
    for (const std::string& seed : atb::fuzz::seeds()) {
      std::ofstream out(directory + "/seed" + std::to_string(number++), std::ios::binary);
      out.write(seed.data(), static_cast<std::streamsize>(seed.size()));
      if (!out.flush()) std::exit(1);
    }
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  atb::fuzz::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
