// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding: its many spellings in configurations, and its frequencies.
#pragma once

#include <vector>

#include "models/load/config_json.h"
#include "models/load/gguf_config.h"
#include "models/model.h"

namespace atb {

// From config.json: rope_theta beside rope_scaling {type or rope_type, ...}, or both inside rope_parameters. A type
// other than default and llama3 is kUnsupported naming it. `context` is llama3's fallback for the original context.
RopeConfig rope_from_hf(const ConfigJson& config, int64_t head_dim, int64_t context);

// From GGUF: rope.freq_base, rope.dimension_count, rope.scaling.*, and the tensor rope_freqs.weight (llama3's
// divisors).
RopeConfig rope_from_gguf(const GgufConfig& config, int64_t head_dim);

// inv_freq, rotary_dim / 2 values: theta^(-2i / rotary_dim), scaled as the type says. Each step is rounded to f32 in
// the order of transformers (modeling_rope_utils), so that angles at far positions agree with it.
std::vector<float> rope_frequencies(const RopeConfig& rope);

}  // namespace atb
