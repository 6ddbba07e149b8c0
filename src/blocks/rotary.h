// SPDX-License-Identifier: Apache-2.0
// Frequencies of rotary position embedding, for model families and declared blocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace atb {

// How positions rotate the features of a head.
struct RopeConfig {
  double theta = 10000.0;
  std::string type = "default";  // or "llama3"
  int64_t rotary_dim = 0;        // leading dims of a head that rotate; even, at most head_dim
  // llama3 only.
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_context = 0;
  // Divisor of each frequency (GGUF rope_freqs.weight), rotary_dim / 2 of them; empty: none.
  std::vector<float> frequency_divisors;
};

// inv_freq, rotary_dim / 2 values: theta^(-2i / rotary_dim), scaled as the type says. Each step is rounded to f32 in
// the order of transformers (modeling_rope_utils), so that angles at far positions agree with it.
std::vector<float> rope_frequencies(const RopeConfig& rope);

}  // namespace atb
