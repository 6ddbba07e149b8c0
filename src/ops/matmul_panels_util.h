// SPDX-License-Identifier: Apache-2.0
// A weight packed in panels: which rows of the constant each panel holds, and where they go.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ir/kernel.h"
#include "kernels/matmul.h"

namespace atb {

struct MatmulPanel {
  int64_t first_row;  // of the weight
  int64_t count;      // rows, 1 to 16
  int64_t output;     // of the node
  int64_t column;     // of that output
};

// Each output's features start a new panel. A gate's panels alternate with the up panels of the same features; such a
// pair is a unit of work, otherwise each panel is one.
class MatmulPanels {
 public:
  MatmulPanels(const KernelRequest& request, const MatmulFormat& format, const std::vector<int64_t>& splits,
               bool gated);

  int64_t k() const noexcept { return k_; }
  int64_t panels() const noexcept { return static_cast<int64_t>(panels_.size()); }
  int64_t unit_panels() const noexcept { return unit_panels_; }
  int64_t units() const noexcept { return panels() / unit_panels_; }
  size_t panel_bytes() const noexcept { return panel_bytes_; }
  size_t bytes() const noexcept { return panel_bytes_ * panels_.size(); }
  const MatmulPanel& info(int64_t panel) const noexcept { return panels_[static_cast<size_t>(panel)]; }
  const std::byte* panel(int64_t panel) const noexcept {
    return data_.get() + static_cast<size_t>(panel) * panel_bytes_;
  }

 private:
  int64_t k_;
  int64_t unit_panels_;
  size_t panel_bytes_;
  std::vector<MatmulPanel> panels_;
  std::shared_ptr<const std::byte> data_;
};

}  // namespace atb
