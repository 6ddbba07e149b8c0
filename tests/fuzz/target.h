// SPDX-License-Identifier: Apache-2.0
// What a fuzz target is. Each <name>_fuzz.cc defines the two functions below; libfuzzer_main.cc drives it with clang's
// libFuzzer (`make fuzz`), replay_test.cc with its seeds and a few fixed mutations (`make test`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace atb::fuzz {

// Inputs to start from: small and valid, so that mutations reach deep.
std::vector<std::string> seeds();

// One input. Bad input must end in an Error that is the input's fault; `expect` reports anything else.
void run(std::string_view input);

// A finding unless `ok`. Aborts, as libFuzzer wants it.
inline void expect(bool ok, std::string_view what) {
  if (ok) return;
  std::fprintf(stderr, "[fuzz] finding: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

// True if `body` ran, false if it refused its input as it should: with an Error of one line that starts with where, and
// not with kInternal, which means a bug of ours. Other exceptions pass and end the fuzzer.
template <class Body>
bool accepts(Body body) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    const std::string_view text = error.what();
    expect(error.code() != Code::kInternal, text);
    expect(text.starts_with('[') && text.find(']') != text.npos && text.find('\n') == text.npos, text);
    return false;
  }
}

inline std::vector<std::byte> bytes_of(std::string_view text) {
  std::vector<std::byte> bytes(text.size());
  if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

}  // namespace atb::fuzz
