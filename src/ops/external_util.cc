// SPDX-License-Identifier: Apache-2.0
#include "ops/external_util.h"

#include "core/error.h"
#include "ir/text.h"

namespace atb {

bool has_body(const Node& external) { return !external.attrs().text("body").empty(); }

std::unique_ptr<Graph> body_of(const Attrs& external) {
  require(!external.text("body").empty(), Code::kUnsupported, "[external] ", external.text("target"),
          " has no definition in ATB's operators, so only its kernel can compute it");
  return parse_graph(external.text("body"));
}

const std::string& kernel_name(const Node& external) { return external.attrs().text("kernel"); }

std::string describe_external(const Node& external) {
  const std::string& where = external.scope().empty() ? external.name() : external.scope();
  return external.attrs().text("target") + " (" + where + ")";
}

}  // namespace atb
