// SPDX-License-Identifier: Apache-2.0
// The public C++ API: open a model, generate token ids, read logits and figures. Text belongs to the Python package.
//
//   auto model = atb::LanguageModel::open("model.gguf", {});
//   auto request = model->engine().submit({1, 2, 3}, {.max_new_tokens = 16});
//   for (atb::Progress p; p.finished == atb::FinishReason::kNone;) p = model->engine().next(request);
#pragma once

#include "api/language_model.h"
#include "core/error.h"
#include "core/log.h"
#include "devices/device.h"
