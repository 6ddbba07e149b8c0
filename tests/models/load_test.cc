// SPDX-License-Identifier: Apache-2.0
// Loading: files that do not fit their configuration, what is warned about, inspect and name resolution.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/log.h"
#include "ir/kernel.h"
#include "models/inspect.h"
#include "models/model.h"
#include "models/resolve.h"
#include "models/tiny_models.h"

namespace atb {
namespace {

using testing::GgufId;
using testing::GgufWriter;
using testing::TempDir;
using testing::TinyLlama;

TinyLlama tiny() {
  TinyLlama model;
  model.layers = 1;
  return model.fill();
}

TEST(Load, PathsThatAreNoModel) {
  const TempDir dir;
  EXPECT_ATB_ERROR(load_model(dir / "absent"), Code::kNotFound, "absent", "does not exist");
  EXPECT_ATB_ERROR(load_model(dir.path()), Code::kNotFound, "config.json");
  EXPECT_ATB_ERROR(load_model(dir.write("x.gguf", "not a model")), Code::kInvalidArgument, "x.gguf", "GGUF");
  dir.write("config.json", tiny().config_json());
  EXPECT_ATB_ERROR(load_model(dir.path()), Code::kNotFound, "model.safetensors");
}

TEST(Load, ShapesMustAgreeWithTheConfiguration) {
  TinyLlama model = tiny();
  model.extra_config["intermediate_size"] = "63";
  const TempDir dir;
  EXPECT_ATB_ERROR(load_model(model.write_directory(dir)), Code::kDataLoss, "model.layers.0.mlp.gate_proj.weight",
                   "[64, 32]", "[63, 32]");
  GgufWriter writer = tiny().gguf_header();
  TinyLlama other = tiny();
  other.tensors["model.layers.0.self_attn.k_proj.weight"] = {{32, 32}, std::vector<float>(32 * 32)};
  other.add_gguf_tensors(writer);
  EXPECT_ATB_ERROR(load_model(dir.write("m.gguf", writer.bytes())), Code::kDataLoss, "blk.0.attn_k.weight", "[32, 32]",
                   "[16, 32]");
}

TEST(Load, MissingTensorsAreNamed) {
  TinyLlama model = tiny();
  model.tensors.erase("model.layers.0.mlp.up_proj.weight");
  const TempDir dir;
  EXPECT_ATB_ERROR(load_model(model.write_directory(dir)), Code::kNotFound, "model.layers.0.mlp.up_proj.weight",
                   "[64, 32]");
  EXPECT_ATB_ERROR(load_model(model.write_gguf(dir)), Code::kNotFound, "blk.0.ffn_up.weight");
}

TEST(Load, UnusedTensorsAreListedOnceAndHarmlessOnesAreNot) {
  TinyLlama model = tiny();
  model.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {{4}, {1, 1, 1, 1}};
  const TempDir dir;
  EXPECT_TRUE(load_model(model.write_directory(dir)).warnings.empty());
  model.tensors["extra.b"] = {{1}, {1}};
  model.tensors["extra.a"] = {{1}, {1}};
  const LoadedModel loaded = load_model(model.write_directory(dir), {.log_warnings = false});
  ASSERT_EQ(loaded.warnings.size(), 1u);
  EXPECT_EQ(loaded.warnings[0], "2 tensors of the file are not used: extra.a, extra.b");
}

TEST(Load, StopTokensOutsideTheVocabularyAreDropped) {
  TinyLlama model = tiny();
  model.extra_config["eos_token_id"] = "[2, 32]";
  const TempDir dir;
  const LoadedModel loaded = load_model(model.write_directory(dir), {.log_warnings = false});
  EXPECT_EQ(loaded.config.eos_ids, std::vector<int64_t>{2});
  ASSERT_EQ(loaded.warnings.size(), 1u);
  EXPECT_NE(loaded.warnings[0].find("eos_token_id 32"), std::string::npos);
}

TEST(Load, AModelTypeThatContradictsTheArchitectureIsWarnedAbout) {
  const auto warnings = [](const std::string& architecture, const std::string& model_type) {
    TinyLlama model = tiny();
    model.extra_config = {{"architectures", "[\"" + architecture + "\"]"},
                          {"model_type", "\"" + model_type + "\""},
                          {"sliding_window", "null"}};
    const TempDir dir;
    return load_model(model.write_directory(dir), {.log_warnings = false}).warnings;
  };
  EXPECT_TRUE(warnings("LlamaForCausalLM", "llama").empty());
  EXPECT_TRUE(warnings("MistralForCausalLM", "mistral").empty());
  for (const auto& [architecture, type] : {std::pair("LlamaForCausalLM", "gpt2"), {"MistralForCausalLM", "llama"}}) {
    const auto got = warnings(architecture, type);
    ASSERT_EQ(got.size(), 1u) << architecture;
    EXPECT_NE(got[0].find(std::string("model_type \"") + type + "\" contradicts architectures " + architecture),
              std::string::npos)
        << got[0];
  }
}

TEST(Load, AConfigAloneIsWarnedAboutToo) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, const std::string& line) { lines.push_back(line); });
  const auto explain = [](const std::string& model_type) {
    TinyLlama model = tiny();
    model.extra_config = {{"architectures", "[\"LlamaForCausalLM\"]"}, {"model_type", "\"" + model_type + "\""}};
    const TempDir dir;
    return build_from_config(dir.write("config.json", model.config_json()));
  };
  EXPECT_NE(explain("llama"), nullptr);
  EXPECT_TRUE(lines.empty());
  EXPECT_NE(explain("gpt2"), nullptr);
  set_log_sink(nullptr);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("model_type \"gpt2\" contradicts architectures LlamaForCausalLM"), std::string::npos);
}

TEST(Load, GgufVocabularyMustFitTheEmbedding) {
  const TempDir dir;
  const auto load = [&](int64_t tokens) {
    GgufWriter writer = tiny().gguf_header();
    writer.strings("tokenizer.ggml.tokens", std::vector<std::string>(static_cast<size_t>(tokens), "x"));
    tiny().add_gguf_tensors(writer);
    return load_model(dir.write("m.gguf", writer.bytes()), {.log_warnings = false}).warnings;
  };
  EXPECT_TRUE(load(32).empty());
  EXPECT_ATB_ERROR(load(33), Code::kDataLoss, "tokenizer.ggml.tokens has 33 tokens", "32 rows");
  const auto padded = load(31);
  ASSERT_EQ(padded.size(), 1u);
  EXPECT_NE(padded[0].find("32 rows, but the tokenizer 31 tokens"), std::string::npos) << padded[0];
}

TEST(Load, GgufTensorsThatCannotBeDecodedAreListedButNotLoaded) {
  const TempDir dir;
  GgufWriter writer = tiny().gguf_header();
  tiny().add_gguf_tensors(writer);
  writer.tensor("blk.9.odd", {1, 256}, GgufId::kQ6_K, std::string(210, 'x'));
  const auto path = dir.write("m.gguf", writer.bytes());
  EXPECT_ATB_ERROR(load_model(path), Code::kUnsupported, "tensor blk.9.odd is of type Q6_K");
  const auto listed = nlohmann::json::parse(inspect_json(path));
  EXPECT_EQ(listed["types"]["Q6_K"], nlohmann::json({{"tensors", 1}, {"bytes", 210}}));
  EXPECT_EQ(listed["tensors"].back()["name"], "blk.9.odd");
  EXPECT_EQ(build_from_config(path)->nodes().empty(), false);  // accounting needs no weights
}

TEST(Load, AFileTruncatedMeanwhileIsAnErrorBeforeItsWeightsArePacked) {
  const TempDir dir;
  const LoadedModel model = load_model(tiny().write_gguf(dir));
  const ConstantRef weight = model.tensors.at("blk.0.ffn_up.weight");
  PackedStore store;
  std::filesystem::resize_file(dir / "model.gguf", 64);
  EXPECT_ATB_ERROR(store.f32(weight), Code::kDataLoss, "model.gguf was truncated while in use", "now 64");
}

TEST(Load, GgufConfigurationIsChecked) {
  const TempDir dir;
  const auto with = [&](const std::function<void(GgufWriter&)>& change) {
    GgufWriter writer = tiny().gguf_header();
    change(writer);
    tiny().add_gguf_tensors(writer);
    return dir.write("m.gguf", writer.bytes());
  };
  EXPECT_ATB_ERROR(load_model(with([](GgufWriter& w) { w.u32("llama.expert_count", 8); })), Code::kUnsupported,
                   "llama.expert_count", "8");
  EXPECT_ATB_ERROR(load_model(with([](GgufWriter& w) { w.text("llama.rope.scaling.type", "yarn"); })),
                   Code::kUnsupported, "llama.rope.scaling.type", "yarn");
  EXPECT_ATB_ERROR(load_model(with([](GgufWriter& w) { w.f32("llama.logit_scale", 2.0f); })), Code::kUnsupported,
                   "llama.logit_scale");
  GgufWriter other;
  other.text("general.architecture", "mystery");
  EXPECT_ATB_ERROR(load_model(dir.write("m.gguf", other.bytes())), Code::kUnsupported, "mystery", "supported: llama");
  EXPECT_ATB_ERROR(load_model(dir.write("m.gguf", GgufWriter().bytes())), Code::kDataLoss, "general.architecture");
  GgufWriter bare;
  bare.text("general.architecture", "llama");
  EXPECT_ATB_ERROR(load_model(dir.write("m.gguf", bare.bytes())), Code::kNotFound, "token_embd.weight");
  bare.f32_tensor("token_embd.weight", {2, 2}, {1, 2, 3, 4});
  EXPECT_ATB_ERROR(load_model(dir.write("m.gguf", bare.bytes())), Code::kInvalidArgument, "llama.embedding_length",
                   "missing");
}

TEST(Load, GgufLayerCountsAreNotTrusted) {
  const TempDir dir;
  for (const uint32_t layers : {0u, 100u, 513u, 4000000000u}) {
    TinyLlama model = tiny();
    model.layers = layers;
    GgufWriter writer = model.gguf_header();
    model.layers = 1;
    model.add_gguf_tensors(writer);
    const Code code = layers == 100 ? Code::kNotFound : Code::kInvalidArgument;
    EXPECT_ATB_ERROR(load_model(dir.write("m.gguf", writer.bytes())), code,
                     layers == 100 ? "blk.1." : "llama.block_count");
  }
}

TEST(Load, TokensOfGguf) {
  const TempDir dir;
  GgufWriter writer = tiny().gguf_header();
  writer.u32("tokenizer.ggml.bos_token_id", 1)
      .u32("tokenizer.ggml.eos_token_id", 2)
      .u32("tokenizer.ggml.eot_token_id", 7);
  tiny().add_gguf_tensors(writer);
  const ModelConfig config = load_model(dir.write("m.gguf", writer.bytes())).config;
  EXPECT_EQ(config.bos_ids, std::vector<int64_t>{1});
  EXPECT_EQ(config.eos_ids, (std::vector<int64_t>{2, 7}));
}

TEST(Inspect, DescribesBothKinds) {
  const TempDir dir;
  dir.write("tokenizer.json", "{}");
  auto report = nlohmann::json::parse(inspect_json(tiny().write_directory(dir).string()));
  EXPECT_EQ(report["format"], "safetensors");
  EXPECT_EQ(report["family"], "llama");
  EXPECT_EQ(report["architecture"], "LlamaForCausalLM");
  EXPECT_EQ(report["context_length"], 64);
  EXPECT_EQ(report["config"]["hidden_size"], 32);
  EXPECT_EQ(report["tokenizer"]["kind"], "tokenizer.json");
  EXPECT_EQ(report["tensors"].size(), 11u);
  EXPECT_EQ(report["types"]["f32"]["tensors"], 11);
  EXPECT_EQ(report["tensor_bytes"], report["types"]["f32"]["bytes"]);

  GgufWriter writer = tiny().gguf_header();
  writer.text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", "smollm")
      .strings("tokenizer.ggml.tokens", {"a", "\xff"});
  tiny().add_gguf_tensors(writer, GgufId::kQ4_1, "q4_1");
  report = nlohmann::json::parse(inspect_json(dir.write("m.gguf", writer.bytes()).string()));
  EXPECT_EQ(report["format"], "gguf");
  EXPECT_EQ(report["tokenizer"],
            (nlohmann::json{{"kind", "gguf"}, {"model", "gpt2"}, {"pre", "smollm"}, {"tokens", 2}}));
  EXPECT_EQ(report["types"]["q4_1"]["tensors"], 8);
}

TEST(Inspect, UnknownFamiliesAreStillDescribed) {
  const TempDir dir;
  GgufWriter writer;
  writer.text("general.architecture", "mystery").f32_tensor("w\xff", {2}, {1, 2});
  const auto report = nlohmann::json::parse(inspect_json(dir.write("m.gguf", writer.bytes()).string()));
  EXPECT_TRUE(report["family"].is_null());
  EXPECT_EQ(report["tensors"][0]["shape"][0], 2);
}

// Sets an environment variable for one test.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Environment() {
    if (old_.empty()) {
      ::unsetenv(name_);
    } else {
      ::setenv(name_, old_.c_str(), 1);
    }
  }

 private:
  const char* name_;
  std::string old_;
};

TEST(Resolve, PathsAndTheLocalCache) {
  const TempDir cache;
  cache.write("models--org--small.model-1/refs/main", "abc123\n");
  cache.write("models--org--small.model-1/snapshots/abc123/config.json", "{}");
  const Environment environment("HF_HUB_CACHE", cache.path().string());
  EXPECT_EQ(resolve_model_path(cache.path().string()), cache.path().string());
  EXPECT_EQ(resolve_model_path("org/small.model-1"), (cache / "models--org--small.model-1/snapshots/abc123").string());
  EXPECT_ATB_ERROR(resolve_model_path("org/other"), Code::kNotFound, "org/other", "hf download org/other");
  for (const char* name : {"../x", "a/../b", "no-such-file", "a/b/c", "/etc/none", "org/..", "o\nrg/x"}) {
    EXPECT_ATB_ERROR(resolve_model_path(name), Code::kNotFound, "does not exist");
  }
  EXPECT_ATB_ERROR(resolve_model_path(""), Code::kInvalidArgument, "empty");
  cache.write("models--org--bad/refs/main", "../../../etc");
  EXPECT_ATB_ERROR(resolve_model_path("org/bad"), Code::kNotFound, "org/bad");
}

}  // namespace
}  // namespace atb
