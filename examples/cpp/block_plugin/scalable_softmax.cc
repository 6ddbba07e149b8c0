// SPDX-License-Identifier: Apache-2.0
// A plugin that looks at its context: queries are scaled by s log(n) for the n keys up to their position, so that
// attention stays sharp over long texts (Nakanishi 2025, arXiv:2501.19399, where s is learned; here it is fixed). Keys
// and values stay. f32, [batch, heads, tokens, head_dim].
//
// From the root of the project (README.md has the rest):
//
//   c++ -O2 -shared -fPIC -I include examples/cpp/block_plugin/scalable_softmax.cc -o libscalable_softmax.so
//
//   block.register_plugin("pre_attention", atb_torch.load_plugin("./libscalable_softmax.so"))
#include <atb/plugin.h>

#include <cmath>
#include <cstdint>

namespace {

constexpr int kStreams = 3;  // q, k, v
constexpr float kSharpness = 0.43F;

const char* supports(const atb_call* types) {
  if (types->num_inputs != kStreams || types->num_outputs != kStreams) return "it takes (q, k, v) and gives as many";
  for (int i = 0; i < kStreams; ++i) {
    if (types->inputs[i].dtype != ATB_F32) return "q, k and v must be f32";
    if (types->inputs[i].rank != 4) return "q, k and v must be [batch, heads, tokens, head_dim]";
  }
  return nullptr;
}

// Sequences, which the workers share.
int64_t units(const atb_call* call) { return call->inputs[0].shape[0]; }

float scale_at(const atb_context* context, int64_t sequence, int64_t token) {
  const int64_t position = context->positions[sequence * context->tokens + token];
  return kSharpness * std::log(static_cast<float>(position + 1));
}

void copy(const atb_call* call, int stream, int64_t sequence) {
  const atb_tensor& from = call->inputs[stream];
  const atb_tensor& to = call->outputs[stream];
  for (int64_t head = 0; head < from.shape[1]; ++head) {
    for (int64_t token = 0; token < from.shape[2]; ++token) {
      const float scale = stream == 0 ? scale_at(call->context, sequence, token) : 1;
      const float* x = static_cast<float*>(from.data) + sequence * from.strides[0] + head * from.strides[1] +
                       token * from.strides[2];
      float* y = static_cast<float*>(to.data) + sequence * to.strides[0] + head * to.strides[1] + token * to.strides[2];
      for (int64_t i = 0; i < from.shape[3]; ++i) y[i * to.strides[3]] = x[i * from.strides[3]] * scale;
    }
  }
}

int32_t run(const atb_call* call, int64_t begin, int64_t end) {
  if (call->context == nullptr) return 1;  // no plugin of a block
  for (int64_t sequence = begin; sequence < end && sequence < units(call); ++sequence) {
    for (int stream = 0; stream < kStreams; ++stream) copy(call, stream, sequence);
  }
  return 0;
}

const atb_kernel kernels[] = {{"scalable_softmax", supports, units, run}};
const atb_plugin plugin = {ATB_PLUGIN_ABI, 1, kernels};

}  // namespace

ATB_PLUGIN_EXPORT const atb_plugin* atb_plugin_describe(void) { return &plugin; }
