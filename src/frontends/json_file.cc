// SPDX-License-Identifier: Apache-2.0
// JSON files: quotes bare NaN and Infinity, bounds nesting, finds duplicate keys.
#include "frontends/json_file.h"

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "frontends/mapped_file.h"

namespace atb {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxBytes = size_t{64} << 20;
constexpr int kMaxDepth = 32;

// Length of the string literal that starts at text[begin] (a quote), up to and including its closing quote.
size_t literal_length(std::string_view text, size_t begin) {
  size_t i = begin + 1;
  while (i < text.size() && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
  return std::min(i + 1, text.size()) - begin;
}

std::string quote_non_finite(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '"') {
      const size_t length = literal_length(text, i);
      out.append(text.substr(i, length));
      i += length;
      continue;
    }
    std::string_view word;
    for (const std::string_view candidate : {"NaN", "Infinity", "-Infinity"}) {
      if (text.substr(i, candidate.size()) == candidate) word = candidate;
    }
    if (word.empty()) {
      out.push_back(text[i++]);
    } else {
      out.append("\"").append(word).append("\"");
      i += word.size();
    }
  }
  return out;
}

}  // namespace

Json read_json_file(const std::filesystem::path& path, const char* where, bool allow_duplicates) {
  const std::string text = quote_non_finite(read_text_file(path, where, kMaxBytes));
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    require(depth <= kMaxDepth, Code::kDataLoss, where, " ", path.string(), ": nested deeper than ", kMaxDepth,
            " levels");
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      const std::string& key = parsed.get_ref<const std::string&>();
      const bool fresh = keys.back().insert(key).second;
      require(fresh || allow_duplicates, Code::kDataLoss, where, " ", path.string(), ": the key \"", key,
              "\" appears twice");
    }
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const Json::parse_error& error) {
    throw_error(Code::kDataLoss, where, " ", path.string(), ": not valid JSON at byte ", error.byte);
  } catch (const Json::out_of_range&) {
    throw_error(Code::kDataLoss, where, " ", path.string(), ": holds a number beyond the range of 64-bit floats");
  }
}

}  // namespace atb
