// SPDX-License-Identifier: Apache-2.0
// Texts one after another, as errors list them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace atb {

// "a, b, c"; empty for no parts.
inline std::string join(const std::vector<std::string>& parts, std::string_view separator = ", ") {
  std::string text;
  for (const std::string& part : parts) text.append(text.empty() ? std::string_view() : separator).append(part);
  return text;
}

}  // namespace atb
