// SPDX-License-Identifier: Apache-2.0
// JSON files: quotes numbers that are not finite, bounds nesting, finds duplicate keys.
#include "frontends/json_file.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
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

bool is_number_char(char c) {
  return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

// Length of what starts at text[begin], outside strings, and stands for a number that no finite 64-bit float holds.
size_t non_finite_length(std::string_view text, size_t begin) {
  for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
    if (text.substr(begin, word.size()) == word) return word.size();
  }
  const size_t end = std::find_if_not(text.begin() + begin, text.end(), is_number_char) - text.begin();
  const std::string digits(text.substr(begin, end - begin));
  char* parsed_end = nullptr;
  const double value = std::strtod(digits.c_str(), &parsed_end);
  const bool whole = !digits.empty() && parsed_end == digits.c_str() + digits.size();
  return whole && std::isinf(value) ? digits.size() : 0;
}

std::string quote_non_finite(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '"') {
      const size_t length = literal_length(text, i);
      out.append(text.substr(i, length));
      i += length;
    } else if (const size_t length = non_finite_length(text, i); length > 0) {
      out.append("\"").append(text.substr(i, length)).append("\"");
      i += length;
    } else {
      do {
        out.push_back(text[i++]);
      } while (i < text.size() && is_number_char(text[i - 1]) && is_number_char(text[i]));
    }
  }
  return out;
}

}  // namespace

Json read_json_file(const std::filesystem::path& path, const char* where, bool allow_duplicates) {
  return parse_json(read_text_file(path, where, kMaxBytes), std::string(where) + " " + path.string(), allow_duplicates);
}

Json parse_json(std::string_view text, const std::string& where, bool allow_duplicates) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    require(depth <= kMaxDepth, Code::kDataLoss, where, ": nested deeper than ", kMaxDepth, " levels");
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      const std::string& key = parsed.get_ref<const std::string&>();
      const bool fresh = keys.back().insert(key).second;
      require(fresh || allow_duplicates, Code::kDataLoss, where, ": the key \"", key, "\" appears twice");
    }
    return true;
  };
  try {
    return Json::parse(quote_non_finite(text), check);
  } catch (const Json::parse_error& error) {
    throw_error(Code::kDataLoss, where, ": not valid JSON at byte ", error.byte);
  } catch (const Json::exception&) {  // a number out of range where none is allowed
    throw_error(Code::kDataLoss, where, ": not valid JSON");
  }
}

}  // namespace atb
