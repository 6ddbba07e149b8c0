// SPDX-License-Identifier: Apache-2.0
// Throwing the one exception of the library (atb/error.h), with a message made of parts.
#pragma once

#include <sstream>
#include <string>

#include "atb/error.h"

namespace atb {

// `text` on one line: control characters, which names from files may hold, become \\xNN.
inline std::string printable(std::string text) {
  constexpr char kHex[] = "0123456789abcdef";
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x20 && byte != 0x7f) continue;
    text.replace(i, 1, {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]});
    i += 3;
  }
  return text;
}

// Builds a message from parts: throw_error(Code::kDataLoss, "[gguf] ", path, ": cut at ", n, " bytes").
// Message form: "[where] what: actual, allowed; what to do".
template <class... Parts>
[[noreturn]] void throw_error(Code code, const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  throw Error(code, printable(out.str()));
}

// Throws unless `ok`; for what a user or a file can get wrong. Programmer mistakes use ATB_DCHECK.
template <class... Parts>
void require(bool ok, Code code, const Parts&... parts) {
  if (!ok) throw_error(code, parts...);
}

}  // namespace atb

#ifdef NDEBUG
#define ATB_DCHECK(condition) ((void)0)
#else
#define ATB_DCHECK(condition) \
  ((condition) ? (void)0      \
               : ::atb::throw_error(::atb::Code::kInternal, "[dcheck] ", __FILE__, ":", __LINE__, " ", #condition))
#endif
