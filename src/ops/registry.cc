// SPDX-License-Identifier: Apache-2.0
// The process-wide registry, filled by the generated list of this build's operators.
#include "ir/op.h"

namespace atb {

void register_all_ops(OpRegistry& registry);  // generated

const OpRegistry& OpRegistry::instance() {
  static const OpRegistry& registry = *[] {
    auto* filled = new OpRegistry;  // never destroyed: graphs may outlive static destruction
    register_all_ops(*filled);
    return filled;
  }();
  return registry;
}

}  // namespace atb
