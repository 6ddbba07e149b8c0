// SPDX-License-Identifier: Apache-2.0
// Strict reading of small JSON files beside the weights. Include only in .cc files: it pulls in the JSON library.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace atb {

// Parses at most 64 MB. kDataLoss "<where> path: reason" for bad JSON, nesting beyond 32 levels, or (unless
// `allow_duplicates`) a key that appears twice in one object. Bare NaN and Infinity, which some writers put into files,
// become the strings "NaN", "Infinity", "-Infinity", and so do numbers beyond 64-bit floats ("1e999"): a reader that
// wants a number there then names the field.
nlohmann::json read_json_file(const std::filesystem::path& path, const char* where, bool allow_duplicates);

// The same for a text; `where` starts messages ("[config] path").
nlohmann::json parse_json(std::string_view text, const std::string& where, bool allow_duplicates);

}  // namespace atb
