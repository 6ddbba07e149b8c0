// SPDX-License-Identifier: Apache-2.0
// The one exception of the library: a canonical code and a one-line message that starts with where.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace atb {

// Canonical codes. Each reaches Python as an exception class of the same meaning.
enum class Code {
  kInvalidArgument,     // the caller passed something that can never work
  kNotFound,            // a file, tensor, operator or model that does not exist
  kDataLoss,            // a file that is cut, inconsistent or corrupt
  kUnsupported,         // well-formed, but this build or device cannot do it
  kResourceExhausted,   // memory, KV blocks, context length
  kCancelled,           // the caller cancelled
  kFailedPrecondition,  // right call at the wrong time (after fork, closed, re-entered)
  kInternal,            // a bug in this library
};

class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

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
