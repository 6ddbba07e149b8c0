// SPDX-License-Identifier: Apache-2.0
// B16: a tied head left out, or a real one discarded.
#include <gtest/gtest.h>

#include "models/model.h"
#include "models/tiny_models.h"

namespace atb {
namespace {

using testing::TempDir;
using testing::TinyLlama;

TinyLlama model(bool tied_flag, bool stored_head) {
  TinyLlama result;
  result.layers = 1;
  result.tied = !stored_head;
  result.fill();
  result.tied = tied_flag;
  return result;
}

std::vector<float> head_of(const LoadedModel& loaded) {
  return loaded.graph->outputs()[0]->producer()->input(1)->constant()->to_f32();
}

TEST(B16, TiedWithoutAStoredHeadUsesTheEmbedding) {
  const TempDir dir;
  const TinyLlama tiny = model(true, false);
  const LoadedModel loaded = load_model(tiny.write_directory(dir));
  EXPECT_EQ(head_of(loaded), tiny.tensors.at("model.embed_tokens.weight").values);
  EXPECT_TRUE(loaded.warnings.empty());
}

TEST(B16, TiedWithADifferentStoredHeadUsesItAndWarns) {
  const TempDir dir;
  const TinyLlama tiny = model(true, true);
  const LoadedModel loaded = load_model(tiny.write_directory(dir), {.log_warnings = false});
  EXPECT_EQ(head_of(loaded), tiny.tensors.at("lm_head.weight").values);
  ASSERT_EQ(loaded.warnings.size(), 1u);
  EXPECT_NE(loaded.warnings[0].find("lm_head.weight"), std::string::npos) << loaded.warnings[0];
}

TEST(B16, TiedWithTheSameStoredHeadIsSilent) {
  const TempDir dir;
  TinyLlama tiny = model(true, true);
  tiny.tensors["lm_head.weight"] = tiny.tensors["model.embed_tokens.weight"];
  const LoadedModel loaded = load_model(tiny.write_directory(dir));
  EXPECT_EQ(head_of(loaded), tiny.tensors.at("model.embed_tokens.weight").values);
  EXPECT_TRUE(loaded.warnings.empty());
}

TEST(B16, UntiedWithoutAHeadIsAnErrorThatNamesIt) {
  const TempDir dir;
  EXPECT_ATB_ERROR(load_model(model(false, false).write_directory(dir)), Code::kNotFound, "lm_head.weight");
}

TEST(B16, TheInnerConfigurationDecides) {
  const TempDir dir;
  TinyLlama tiny = model(false, true);
  const std::string inner = tiny.config_json();
  dir.write("model.safetensors", tiny.safetensors());
  dir.write("config.json",
            R"({"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": true, "text_config": )" + inner + "}");
  const LoadedModel loaded = load_model(dir.path());
  EXPECT_EQ(head_of(loaded), tiny.tensors.at("lm_head.weight").values);
  EXPECT_TRUE(loaded.warnings.empty());
}

TEST(B16, GgufFilesTieByAbsence) {
  const TempDir dir;
  const TinyLlama tied = model(true, false), untied = model(false, true);
  EXPECT_EQ(head_of(load_model(tied.write_gguf(dir))), tied.tensors.at("model.embed_tokens.weight").values);
  EXPECT_EQ(head_of(load_model(untied.write_gguf(dir))), untied.tensors.at("lm_head.weight").values);
}

}  // namespace
}  // namespace atb
