// SPDX-License-Identifier: Apache-2.0
// Messages stay on one line whatever names from files hold.
#include "core/error.h"

#include <gtest/gtest.h>

namespace atb {
namespace {

TEST(Error, ControlCharactersAreEscaped) {
  try {
    throw_error(Code::kDataLoss, "[gguf] key ", std::string("a\0b\nc\x7f", 6), ": cut");
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[gguf] key a\\x00b\\x0ac\\x7f: cut");
    EXPECT_EQ(error.code(), Code::kDataLoss);
  }
}

TEST(Error, RequireThrowsOnlyWhenFalse) {
  EXPECT_NO_THROW(require(true, Code::kInternal, "never"));
  EXPECT_THROW(require(false, Code::kInternal, "always"), Error);
}

}  // namespace
}  // namespace atb
