// SPDX-License-Identifier: Apache-2.0
// Rotary frequencies.
#include "blocks/rotary.h"

#include <cmath>
#include <numbers>

namespace atb {
namespace {

// Llama 3.1's rule: short waves as they are, long ones divided by the factor, a linear blend between.
float scale_llama3(float frequency, const RopeConfig& rope) {
  const auto factor = static_cast<float>(rope.factor);
  const auto context = static_cast<float>(rope.original_context);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto range = static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  const auto longest = static_cast<float>(static_cast<double>(rope.original_context) / rope.low_freq_factor);
  const auto shortest = static_cast<float>(static_cast<double>(rope.original_context) / rope.high_freq_factor);
  const float wave = static_cast<float>(2.0 * std::numbers::pi) / frequency;
  if (wave > longest) return frequency / factor;
  if (wave < shortest) return frequency;
  const float smooth = (context / wave - low) / range;
  const float scaled = (1.0f - smooth) * frequency / factor;
  return scaled + smooth * frequency;
}

}  // namespace

std::vector<float> rope_frequencies(const RopeConfig& rope) {
  std::vector<float> frequencies(static_cast<size_t>(rope.rotary_dim / 2));
  const double theta = static_cast<float>(rope.theta);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope.rotary_dim);
    const auto power = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    frequencies[i] = 1.0f / power;
    if (rope.type == "llama3") frequencies[i] = scale_llama3(frequencies[i], rope);
    if (!rope.frequency_divisors.empty()) frequencies[i] /= rope.frequency_divisors[i];
  }
  return frequencies;
}

}  // namespace atb
