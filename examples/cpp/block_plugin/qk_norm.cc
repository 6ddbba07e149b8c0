// SPDX-License-Identifier: Apache-2.0
// A plugin of a block's attention in C++: every head of the queries and keys is divided by the root of its mean square
// (without weights, as in Henry et al. 2020, arXiv:2010.04245), values stay. f32, [batch, heads, tokens, head_dim].
//
// From the root of the project (README.md has the rest):
//
//   c++ -O2 -shared -fPIC -I include examples/cpp/block_plugin/qk_norm.cc -o libqk_norm.so
//
//   block.register_plugin("pre_attention", atb_torch.load_plugin("./libqk_norm.so"))
#include <atb/plugin.h>

#include <cmath>
#include <cstdint>

namespace {

constexpr int kStreams = 3;  // q, k, v
constexpr float kEps = 1e-6F;

const char* supports(const atb_call* types) {
  if (types->num_inputs != kStreams || types->num_outputs != kStreams) return "it takes (q, k, v) and gives as many";
  for (int i = 0; i < kStreams; ++i) {
    if (types->inputs[i].dtype != ATB_F32) return "q, k and v must be f32";
    if (types->inputs[i].rank != 4) return "q, k and v must be [batch, heads, tokens, head_dim]";
  }
  return nullptr;
}

int64_t rows_of(const atb_tensor& x) { return x.shape[0] * x.shape[1] * x.shape[2]; }

// The first element of a row; inputs may have any strides.
float* row_of(const atb_tensor& x, int64_t row) {
  const int64_t token = row % x.shape[2], head = row / x.shape[2] % x.shape[1], batch = row / x.shape[2] / x.shape[1];
  return static_cast<float*>(x.data) + batch * x.strides[0] + head * x.strides[1] + token * x.strides[2];
}

void copy_row(const atb_tensor& from, const atb_tensor& to, int64_t row, bool normalized) {
  const float* x = row_of(from, row);
  float* y = row_of(to, row);
  const int64_t size = from.shape[3], stride = from.strides[3];
  float squares = 0;
  for (int64_t i = 0; i < size; ++i) squares += x[i * stride] * x[i * stride];
  const float factor = normalized ? 1 / std::sqrt(squares / static_cast<float>(size) + kEps) : 1;
  for (int64_t i = 0; i < size; ++i) y[i] = x[i * stride] * factor;
}

// Rows of all three, which the workers share.
int64_t units(const atb_call* call) {
  int64_t rows = 0;
  for (int i = 0; i < kStreams; ++i) rows += rows_of(call->inputs[i]);
  return rows;
}

int32_t run(const atb_call* call, int64_t begin, int64_t end) {
  for (int i = 0; i < kStreams; ++i) {
    const int64_t rows = rows_of(call->inputs[i]);
    for (int64_t row = begin < 0 ? 0 : begin; row < end && row < rows; ++row) {
      copy_row(call->inputs[i], call->outputs[i], row, i < 2);
    }
    begin -= rows;  // units of the next stream come after this one's
    end -= rows;
  }
  return 0;
}

const atb_kernel kernels[] = {{"qk_norm", supports, units, run}};
const atb_plugin plugin = {ATB_PLUGIN_ABI, 1, kernels};

}  // namespace

ATB_PLUGIN_EXPORT const atb_plugin* atb_plugin_describe(void) { return &plugin; }
