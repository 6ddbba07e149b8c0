// SPDX-License-Identifier: Apache-2.0
// The public C++ API: open a model, generate token ids, read logits and figures. Text belongs to the Python package.
//
//   auto model = atb::LanguageModel::open("model.gguf");
//   const auto request = model->submit({1, 2, 3}, {.max_new_tokens = 16});
//   for (atb::Progress p; p.finished == atb::FinishReason::kNone;) p = model->next(request);
#pragma once

#include "atb/array.h"
#include "atb/block_plugin.h"
#include "atb/error.h"
#include "atb/generation.h"
#include "atb/graph_op.h"
#include "atb/kv_cache.h"
#include "atb/language_model.h"
#include "atb/log.h"
#include "atb/platform.h"
