// SPDX-License-Identifier: Apache-2.0
// The JSON header of a safetensors file: parsed in one pass, without a tree, into what it declares.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace atb {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as written: "F32", "BF16", ...
  std::vector<uint64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes, from the start of the data section
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;        // in the order of the header
  std::map<std::string, std::string> metadata;  // __metadata__
};

// Checks the form of the header only (keys, kinds of values, duplicates): kDataLoss "<where>: <reason>". Sizes and
// offsets are the caller's to check against the file.
SafetensorsHeader parse_safetensors_header(std::string_view json, const std::string& where);

}  // namespace atb
