// SPDX-License-Identifier: Apache-2.0
// The CPU kernel of products with a constant weight.
#include "ops/matmul_kernel.h"

#include <algorithm>
#include <array>
#include <string>

#include "kernels/store_panel.h"
#include "ops/matmul_input_util.h"
#include "ops/matmul_panels_util.h"
#include "ops/row_runs_util.h"

namespace atb {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Rows of a block in many-rows units: its activations (144 x K) stay in L2 while a group of panels passes by.
constexpr int64_t kRowBlock = 144;
// Panels of a unit. A multiple of every tile's panels and of a gate and its up panel.
constexpr int64_t kGroupPanels = 8;

class MatmulKernel final : public Kernel {
 public:
  MatmulKernel(const KernelRequest& request, const MatmulFormat& format, const MatmulOutputs& outputs)
      : op_(request.node.op_name()),
        format_(format),
        activation_(outputs.activation),
        residual_(outputs.residual),
        weight_(request, format, outputs.splits, outputs.gated),
        input_(request, outputs.norm, format.int8, weight_.k()) {
    if (const Value* bias = request.node.input(2)) bias_ = request.store.f32(bias->constant());
  }

  int phases() const override { return input_.has_phase() ? 2 : 1; }

  int64_t units(const Call& call, int phase) const noexcept override {
    const int64_t rows = row_count(call);
    if (rows == 0) return 0;
    if (prepares(phase)) return input_.units(rows);
    if (few(rows)) return weight_.units();
    return row_blocks(rows) * groups();
  }

  double cost(const Call& call, int phase) const noexcept override {
    if (prepares(phase)) return input_.cost(row_count(call));
    const double rows = static_cast<double>(row_count(call));
    const double k = static_cast<double>(weight_.k());
    const double features = static_cast<double>(weight_.panels() * kPanelLanes);
    const double bytes = static_cast<double>(weight_.bytes()) + 4 * rows * (k + features);
    return std::max(bytes, rows * features * k / 4);
  }

  size_t scratch_bytes(const Call& largest) const override { return input_.shared_bytes(row_count(largest)); }

  size_t worker_scratch_bytes(const Call& largest) const override {
    const int64_t rows = row_count(largest);
    const size_t few_bytes = few_tile_bytes() + input_.worker_bytes();
    if (few(rows)) return few_bytes;
    return std::max(few_bytes, many_tile_bytes() + unpacked_bytes());
  }

  bool wants_whole_range(const Call& call, int phase) const noexcept override {
    return !prepares(phase) && few(row_count(call));
  }

  void run(const Call& call, int phase, int64_t begin, int64_t end, std::byte* worker_scratch) const noexcept override {
    if (prepares(phase)) return input_.prepare(call, begin, end, worker_scratch);
    if (few(row_count(call))) return run_few(call, begin, end, worker_scratch);
    for (int64_t unit = begin; unit < end; ++unit) run_many(call, unit, worker_scratch);
  }

  std::string variant(const Call& call) const override {
    const int64_t rows = row_count(call);
    const char* shape = rows == 1 ? "/rows1/" : few(rows) ? "/few_rows/" : "/rowsN/";
    return op_ + "/" + std::string(format_.name) + (format_.int8 ? "/int8" : "/exact") + shape +
           std::string(format_.target);
  }

 private:
  static int64_t row_count(const Call& call) noexcept { return call.inputs[0].rows(); }
  static bool few(int64_t rows) noexcept { return rows <= kMaxFewRows; }
  bool prepares(int phase) const noexcept { return input_.has_phase() && phase == 0; }
  int64_t groups() const noexcept { return ceil_div(weight_.panels(), kGroupPanels); }
  int64_t row_blocks(int64_t rows) const noexcept { return ceil_div(rows, row_block(rows)); }
  // Even blocks of at most about kRowBlock rows, in whole tiles.
  int64_t row_block(int64_t rows) const noexcept {
    return round_up(ceil_div(rows, ceil_div(rows, kRowBlock)), format_.tile_rows);
  }
  // Even passes over K of at most about pass_terms terms, in whole blocks.
  int64_t pass_terms() const noexcept {
    const int64_t k = weight_.k();
    if (format_.pass_terms == 0 || k <= format_.pass_terms) return k;
    return round_up(ceil_div(k, ceil_div(k, format_.pass_terms)), kBlockTerms);
  }

  size_t few_tile_bytes() const noexcept {
    return aligned(sizeof(float) *
                   static_cast<size_t>(kMaxFewRows * kMaxStreams * kPanelLanes * weight_.unit_panels()));
  }
  size_t many_tile_bytes() const noexcept {
    return aligned(sizeof(float) * static_cast<size_t>((kRowBlock + format_.tile_rows) * kGroupPanels * kPanelLanes));
  }
  size_t unpacked_bytes() const { return format_.unpack == nullptr ? 0 : format_.unpacked_bytes(pass_terms()); }

  // Four far streams: the range in quarters, one unit of each at a time; the up to three units left over together.
  void run_few(const Call& call, int64_t begin, int64_t end, std::byte* scratch) const noexcept {
    const MatmulRows prepared = input_.rows(call, scratch + few_tile_bytes());
    std::array<const float*, kMaxFewRows> rows{};
    FewRowsArgs args{};
    args.rows = static_cast<int>(row_count(call));
    args.k = weight_.k();
    args.x = rows.data();
    args.quantized = prepared.quantized;
    if (!format_.int8) {
      const RowRuns x(prepared.x);
      for (int row = 0; row < args.rows; ++row) rows[static_cast<size_t>(row)] = x.row(row);
    }
    float* tile = reinterpret_cast<float*>(scratch);
    const int64_t quarter = (end - begin) / kMaxStreams;
    for (int64_t i = begin; i < begin + quarter; ++i) few_units(call, args, i, quarter, kMaxStreams, tile);
    const int64_t rest = begin + kMaxStreams * quarter;
    if (rest < end) few_units(call, args, rest, 1, static_cast<int>(end - rest), tile);
  }

  // Units first, first + step, ... (`count` of them) of all rows.
  void few_units(const Call& call, FewRowsArgs& args, int64_t first, int64_t step, int count,
                 float* tile) const noexcept {
    const int64_t panel_floats = args.rows * kPanelLanes;
    args.streams = count;
    for (int64_t part = 0; part < weight_.unit_panels(); ++part) {
      for (int s = 0; s < count; ++s) {
        args.panels[s] = weight_.panel((first + s * step) * weight_.unit_panels() + part);
      }
      args.out = tile + part * kMaxStreams * panel_floats;
      format_.few_rows(args);
    }
    for (int s = 0; s < count; ++s) {
      const float* c = tile + s * panel_floats;
      store(call, first + s * step, 0, args.rows, c, c + kMaxStreams * panel_floats, kPanelLanes);
    }
  }

  // A block of rows x a group of panels. Units go through the blocks of a group first: its weights stay in L2.
  void run_many(const Call& call, int64_t unit, std::byte* scratch) const noexcept {
    const int64_t rows = row_count(call);
    const MatmulRows prepared = input_.shared_rows(call);
    const int64_t block = row_block(rows);
    const int64_t first_row = unit % row_blocks(rows) * block;
    const int64_t last_row = std::min(first_row + block, rows);
    const int64_t first_panel = unit / row_blocks(rows) * kGroupPanels;
    const int64_t last_panel = std::min(first_panel + kGroupPanels, weight_.panels());
    constexpr int64_t kStride = kGroupPanels * kPanelLanes;
    float* tile = reinterpret_cast<float*>(scratch);
    std::byte* unpacked = scratch + many_tile_bytes();
    const int64_t step = std::max<int64_t>(pass_terms(), 1);
    // K = 0 takes one pass of no terms: the tile is zeroed.
    for (int64_t term = 0; term == 0 || term < weight_.k(); term += step) {
      const int64_t terms = std::min(step, weight_.k() - term);
      for (int64_t panel = first_panel; panel < last_panel; panel += format_.tile_panels) {
        const int count = static_cast<int>(std::min<int64_t>(format_.tile_panels, last_panel - panel));
        ManyRowsArgs args{};
        args.weights = prepare(panel, count, term, terms, unpacked);
        args.panel_stride = static_cast<int64_t>(weight_.panel_bytes());
        args.panels = count;
        args.k = terms;
        args.c = tile + (panel - first_panel) * kPanelLanes;
        args.c_stride = kStride;
        args.accumulate = term > 0;
        many_rows(prepared, args, first_row, last_row, term);
      }
    }
    for (int64_t panel = first_panel; panel < last_panel; panel += weight_.unit_panels()) {
      const float* c = tile + (panel - first_panel) * kPanelLanes;
      store(call, panel / weight_.unit_panels(), first_row, last_row - first_row, c, c + kPanelLanes, kStride);
    }
  }

  // The weights of some terms as the many-rows tile reads them.
  const std::byte* prepare(int64_t panel, int count, int64_t term, int64_t terms, std::byte* unpacked) const noexcept {
    if (format_.unpack == nullptr) return weight_.panel(panel) + format_.panel_bytes(term);
    std::array<const std::byte*, 2> panels{};
    for (int i = 0; i < count; ++i) panels[static_cast<size_t>(i)] = weight_.panel(panel + i);
    format_.unpack(panels.data(), count, term, terms, unpacked);
    return unpacked;
  }

  void many_rows(const MatmulRows& prepared, ManyRowsArgs args, int64_t first, int64_t last,
                 int64_t term) const noexcept {
    if (format_.int8) {
      args.rows = last - first;
      args.quantized = prepared.quantized.from(first, term);
      return format_.many_rows(args);
    }
    const RowRuns x(prepared.x);
    args.x_stride = x.stride();
    for (int64_t row = first; row < last; row += args.rows) {
      args.rows = std::min(x.run_end(row), last) - row;
      args.x = x.row(row) + term;
      format_.many_rows(args);
      args.c += args.rows * args.c_stride;
    }
  }

  // Finished sums of a unit's panel (and up panel) for rows [first, first + count).
  void store(const Call& call, int64_t unit, int64_t first, int64_t count, const float* c, const float* up,
             int64_t c_stride) const noexcept {
    const MatmulPanel& panel = weight_.info(unit * weight_.unit_panels());
    const bool gated = weight_.unit_panels() > 1;
    const RowRuns out(call.outputs[static_cast<size_t>(panel.output)]);
    StoreArgs args{};
    args.c_stride = c_stride;
    args.activation = activation_;
    args.count = panel.count;
    if (bias_ != nullptr) {
      args.bias = bias_.get() + panel.first_row;
      if (gated) args.up_bias = bias_.get() + weight_.info(unit * weight_.unit_panels() + 1).first_row;
    }
    args.out_stride = out.stride();
    for (int64_t row = first; row < first + count; row += args.rows) {
      args.rows = std::min(out.run_end(row), first + count) - row;
      args.c = c + (row - first) * c_stride;
      if (gated) args.up = up + (row - first) * c_stride;
      args.out = out.row(row) + panel.column;
      if (residual_ >= 0) add_residual(call, panel, row, args);
      store_panel(args);
    }
  }

  // At most args.rows rows from `row` on.
  void add_residual(const Call& call, const MatmulPanel& panel, int64_t row, StoreArgs& args) const noexcept {
    const RowRuns residual(call.inputs[static_cast<size_t>(residual_)]);
    args.rows = std::min(args.rows, residual.run_end(row) - row);
    args.residual = residual.row(row) + panel.column;
    args.residual_stride = residual.stride();
  }

  std::string op_;
  MatmulFormat format_;
  Activation activation_;
  int residual_;
  MatmulPanels weight_;
  MatmulInput input_;
  std::shared_ptr<const float> bias_;
};

bool is_f32(const Value* value) { return value->type().dtype == DType::kF32; }

// True if input `index` (-1: none) is absent or a constant.
bool is_fixed(const Node& node, int index) {
  const Value* value = index < 0 ? nullptr : node.input(static_cast<size_t>(index));
  return value == nullptr || value->is_constant();
}

bool takes_operands(const Node& node, const MatmulOutputs& outputs) {
  if (!node.input(1)->is_constant() || !is_fixed(node, 2)) return false;
  if (outputs.norm && !(is_fixed(node, outputs.norm->weight) && is_fixed(node, outputs.norm->bias))) return false;
  if (outputs.residual >= 0 && !is_f32(node.input(static_cast<size_t>(outputs.residual)))) return false;
  return is_f32(node.input(0)) && std::all_of(node.outputs().begin(), node.outputs().end(), is_f32);
}

}  // namespace

std::unique_ptr<Kernel> make_matmul_kernel(const KernelRequest& request, const MatmulOutputs& outputs) {
  if (!takes_operands(request.node, outputs)) return nullptr;
  const Value* weight = request.node.input(1);
  const Constant& constant = *weight->constant();
  const bool encoded = constant.encoding() != nullptr;
  const std::string name = encoded ? constant.encoding()->name : std::string(dtype_name(constant.dtype()));
  const auto format = find_matmul_format(name, encoded && request.precision == Precision::kFast);
  if (!format) return nullptr;
  return std::make_unique<MatmulKernel>(request, *format, outputs);
}

}  // namespace atb
