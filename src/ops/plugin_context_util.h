// SPDX-License-Identifier: Apache-2.0
// What a kernel from outside is told of the block's call that it runs in (atb_context), from its node and the step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "atb/plugin.h"
#include "ir/kernel.h"

namespace atb {

// Of one external node with the attribute `context` [B, T, S]: sequences, tokens and keys of a call. Its operands after
// as many as it has outputs are positions ([T] or [B, T], integers) and a mask of the keys ([B or 1, S or 1], bools);
// either may be missing.
class PluginContext {
 public:
  explicit PluginContext(const Node& node);

  // Whether the node has one; without it nothing else may be called.
  bool exists() const { return exists_; }
  // Operands that are the kernel's own.
  size_t operands() const { return operands_; }

  // Bytes for the positions and lengths of a call.
  static size_t bytes(const Call& call);
  static double cost(const Call& call);
  // Writes them to the call's scratch. False where the step's sequences or the mask's keys are not the call's.
  bool fill(const Call& call) const noexcept;
  // The context of a call that fill() has seen.
  atb_context of(const Call& call) const noexcept;

 private:
  bool exists_;
  size_t operands_;
  std::string point_;
  int64_t layer_;
};

}  // namespace atb
