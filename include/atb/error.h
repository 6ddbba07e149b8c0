// SPDX-License-Identifier: Apache-2.0
// The one exception of the library: a canonical code and a one-line message that starts with where.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "atb/export.h"

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

// Exported as a whole: what the library throws must be the type that the application catches.
class ATB_API Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

}  // namespace atb
