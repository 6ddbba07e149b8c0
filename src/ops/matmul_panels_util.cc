// SPDX-License-Identifier: Apache-2.0
// Packing a weight into panels.
#include "ops/matmul_panels_util.h"

#include <algorithm>
#include <array>
#include <string>

namespace atb {
namespace {

std::vector<MatmulPanel> plan_panels(const std::vector<int64_t>& splits, bool gated) {
  std::vector<MatmulPanel> panels;
  int64_t row = 0;
  for (size_t output = 0; output < splits.size(); ++output) {
    for (int64_t column = 0; column < splits[output]; column += kPanelLanes) {
      const int64_t count = std::min(kPanelLanes, splits[output] - column);
      panels.push_back({row + column, count, static_cast<int64_t>(output), column});
      if (gated) panels.push_back({splits[output] + column, count, static_cast<int64_t>(output), column});
    }
    row += splits[output];
  }
  return panels;
}

// Names everything that the bytes depend on beside the constant.
std::string layout_name(const MatmulFormat& format, const std::vector<int64_t>& splits, bool gated) {
  std::string name = "panels16/" + std::string(format.name) + (gated ? "/gated" : "");
  for (const int64_t split : splits) name += "/" + std::to_string(split);
  return name;
}

}  // namespace

MatmulPanels::MatmulPanels(const KernelRequest& request, const MatmulFormat& format, const std::vector<int64_t>& splits,
                           bool gated)
    : unit_panels_(gated ? 2 : 1), panels_(plan_panels(splits, gated)) {
  const ConstantRef& weight = request.node.input(1)->constant();
  k_ = weight->row_elems();
  panel_bytes_ = format.panel_bytes(k_);
  const auto pack = [&](std::byte* out, int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      const MatmulPanel& from = info(panel);
      std::array<const std::byte*, static_cast<size_t>(kPanelLanes)> rows{};
      for (int64_t i = 0; i < from.count; ++i) rows[static_cast<size_t>(i)] = weight->row(from.first_row + i);
      format.pack(rows.data(), k_, out + static_cast<size_t>(panel) * panel_bytes_);
    }
  };
  data_ = request.store.get(weight, layout_name(format, splits, gated), bytes(), panels(), pack);
}

}  // namespace atb
