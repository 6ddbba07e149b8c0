// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding: its many spellings in configurations.
#pragma once

#include "blocks/rotary.h"
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

}  // namespace atb
