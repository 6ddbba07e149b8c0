// SPDX-License-Identifier: Apache-2.0
// The message of an operator call that is refused.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "ops/op_case.h"

namespace atb::testing {

// What building the call's graph throws, which must be kInvalidArgument; empty where it throws nothing.
inline std::string refusal(const OpCase& test) {
  Graph graph;
  try {
    build_op_graph(graph, test);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
    return error.what();
  }
  return {};
}

// The call is refused with a message that holds `part`.
inline void expect_refused(const OpCase& test, const std::string& part) {
  const std::string text = refusal(test);
  EXPECT_EQ(text.rfind("[" + test.op + "] out: ", 0), 0u) << "\"" << text << "\"";
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << text << "\" says nothing of \"" << part << "\"";
}

}  // namespace atb::testing
