// SPDX-License-Identifier: Apache-2.0
// A llama as the PyTorch front door hands it over, operator by operator as modules compute it, for tests of the
// pipeline.
#pragma once

#include <memory>
#include <string>

#include "graph_testing.h"
#include "ir/text.h"

namespace atb::test {

struct ExportedLlamaConfig {
  int layers = 2;
  bool merged = false;        // q, k and v in one projection, gate and up in one
  std::string dtype = "f32";  // of the module: bf16 rounds between operators
};

// Hidden 16, 4 query heads and 2 key heads of 8, feed-forward 24, 29 tokens in the vocabulary; eager attention.
class ExportedLlama {
 public:
  explicit ExportedLlama(ExportedLlamaConfig config) : c_(std::move(config)) {}

  std::string text() {
    const std::string d = c_.dtype;
    constant("embed", "[29, 16]");
    constant("norm", "[16]");
    constant("head", "[29, 16]");
    constants_ += "  const @inv_freq : f32[4] = [1.0, 0.316227766, 0.1, 0.0316227766]\n";
    scalars();
    line("x", "embedding(%ids, @embed)", d + "[B, T, 16]");
    positions();
    std::string x = "x";
    for (int layer = 0; layer < c_.layers; ++layer) x = add_layer(x, layer);
    layer_ = -1;
    prefix_.clear();
    norm("final", x, "norm");
    line("logits", "linear(%final, @head)", d + "[B, T, 29]");
    return "graph @exported(%ids: i64[B, T]) {\n" + constants_ + body_ + "  return %logits\n}\n";
  }

 private:
  void constant(const std::string& name, const std::string& shape) {
    constants_ += "  const @" + name + " : " + c_.dtype + shape + "\n";
  }

  void scalars() {
    constants_ += "  const @eps : f32[] = 1e-06\n  const @two : f32[] = 2.0\n  const @one : f32[] = 1.0\n";
    constants_ += "  const @scale : " + c_.dtype + "[] = 0.35355339\n";
    constants_ += "  const @seen : " + c_.dtype + "[] = 0.0\n  const @hidden : " + c_.dtype + "[] = -inf\n";
  }

  // Names of values within a layer get its prefix where they are made and read: "%.q" is "%l3.q".
  std::string resolved(const std::string& text) const {
    std::string result;
    for (const char c : text) {
      const bool marks = c == '.' && !result.empty() && (result.back() == '%' || result.back() == '@');
      marks ? result.append(prefix_) : result.append(1, c);
    }
    return result;
  }

  void line(const std::string& name, const std::string& call, const std::string& type, std::string attrs = "") {
    if (layer_ >= 0) attrs = "layer=" + std::to_string(layer_) + (attrs.empty() ? "" : ", ") + attrs;
    body_ += "  %" + (name[0] == '.' ? prefix_ + name.substr(1) : name) + " = " + resolved(call) +
             (attrs.empty() ? "" : " {" + attrs + "}") + " : " + type + "\n";
  }

  // Position ids, rotary table of both halves, causal mask.
  void positions() {
    line("count", "iota()", "i32[T]", "shape=[T]");
    line("pos", "cast(%count)", "i64[T]", "dtype=\"i64\"");
    line("pos_f", "cast(%pos)", "f32[T]", "dtype=\"f32\"");
    line("column", "reshape(%pos_f)", "f32[1, T, 1]", "shape=[1, T, 1]");
    line("angles", "mul(%column, @inv_freq)", "f32[1, T, 4]");
    line("both", "concat(%angles, %angles)", "f32[1, T, 8]", "axis=2");
    for (const std::string name : {"cos", "sin"}) {
      line(name + "_all", name + "(%both)", "f32[1, T, 8]");
      line(name + "_scaled", "mul(%" + name + "_all, @one)", "f32[1, T, 8]");
      line(name, "cast(%" + name + "_scaled)", c_.dtype + "[1, T, 8]", "dtype=\"" + c_.dtype + "\"");
    }
    line("keys", "reshape(%pos)", "i64[1, 1, 1, T]", "shape=[1, 1, 1, T]");
    line("queries", "reshape(%pos)", "i64[1, 1, T, 1]", "shape=[1, 1, T, 1]");
    line("visible", "less_equal(%keys, %queries)", "bool[1, 1, T, T]");
    line("wide", "broadcast(%visible)", "bool[B, 1, T, T]", "shape=[B, 1, T, T]");
    line("mask", "where(%wide, @seen, @hidden)", c_.dtype + "[B, 1, T, T]");
  }

  void norm(const std::string& name, const std::string& x, const std::string& weight) {
    const std::string t = "[B, T, 16]", d = c_.dtype, n = name;
    line(n + "_f", "cast(%" + x + ")", "f32" + t, "dtype=\"f32\"");
    line(n + "_square", "pow(%" + n + "_f, @two)", "f32" + t);
    line(n + "_mean", "mean(%" + n + "_square)", "f32[B, T, 1]", "axes=[2], keep=true");
    line(n + "_sum", "add(%" + n + "_mean, @eps)", "f32[B, T, 1]");
    line(n + "_root", "rsqrt(%" + n + "_sum)", "f32[B, T, 1]");
    line(n + "_n", "mul(%" + n + "_f, %" + n + "_root)", "f32" + t);
    line(n + "_low", "cast(%" + n + "_n)", d + t, "dtype=\"" + d + "\"");
    line(n, "mul(@" + weight + ", %" + n + "_low)", d + t);
  }

  void project(const std::string& name, const std::string& x, int64_t out, int64_t in) {
    constant(prefix_ + name + ".weight", "[" + std::to_string(out) + ", " + std::to_string(in) + "]");
    line("." + name, "linear(%." + x + ", @." + name + ".weight)", c_.dtype + "[B, T, " + std::to_string(out) + "]");
  }

  void part(const std::string& name, const std::string& whole, int64_t begin, int64_t end) {
    const std::string bounds = std::to_string(begin) + ", " + std::to_string(end);
    line("." + name, "slice(%." + whole + ")", c_.dtype + "[B, T, " + std::to_string(end - begin) + "]",
         "axis=2, bounds=[" + bounds + "]");
  }

  // x * cos + rotate_half(x) * sin with heads first.
  void rotate(const std::string& n, const std::string& heads) {
    const std::string t = c_.dtype + "[B, " + heads + ", T, 8]", half = c_.dtype + "[B, " + heads + ", T, 4]";
    for (const std::string table : {"cos", "sin"}) {
      line("." + n + table, "reshape(%" + table + ")", c_.dtype + "[1, 1, T, 8]", "shape=[1, 1, T, 8]");
    }
    line("." + n + "a", "mul(%." + n + "h, %." + n + "cos)", t);
    line("." + n + "1", "slice(%." + n + "h)", half, "axis=3, bounds=[0, 4]");
    line("." + n + "2", "slice(%." + n + "h)", half, "axis=3, bounds=[4, 8]");
    line("." + n + "n", "neg(%." + n + "2)", half);
    line("." + n + "c", "concat(%." + n + "n, %." + n + "1)", t, "axis=3");
    line("." + n + "b", "mul(%." + n + "c, %." + n + "sin)", t);
    line("." + n + "r", "add(%." + n + "a, %." + n + "b)", t);
  }

  void split_heads(const std::string& name, const std::string& out, const std::string& heads) {
    const std::string shape = "[B, T, " + heads + ", 8]";
    line("." + name + "v_", "reshape(%." + name + ")", c_.dtype + shape, "shape=" + shape);
    line("." + out, "transpose(%." + name + "v_)", c_.dtype + "[B, " + heads + ", T, 8]", "perm=[0, 2, 1, 3]");
  }

  void repeat(const std::string& from, const std::string& to) {
    line("." + to + "1", "reshape(%." + from + ")", c_.dtype + "[B, 2, 1, T, 8]", "shape=[B, 2, 1, T, 8]");
    line("." + to + "2", "broadcast(%." + to + "1)", c_.dtype + "[B, 2, 2, T, 8]", "shape=[B, 2, 2, T, 8]");
    line("." + to, "reshape(%." + to + "2)", c_.dtype + "[B, 4, T, 8]", "shape=[B, 4, T, 8]");
  }

  std::string add_layer(const std::string& x, int layer) {
    layer_ = layer;
    prefix_ = "l" + std::to_string(layer) + ".";
    const std::string d = c_.dtype;
    constant(prefix_ + "norm1", "[16]");
    constant(prefix_ + "norm2", "[16]");
    norm(prefix_ + "n", x, prefix_ + "norm1");
    if (c_.merged) {
      project("qkv", "n", 64, 16);
      part("q", "qkv", 0, 32);
      part("k", "qkv", 32, 48);
      part("v", "qkv", 48, 64);
    } else {
      project("q", "n", 32, 16);
      project("k", "n", 16, 16);
      project("v", "n", 16, 16);
    }
    split_heads("q", "qh", "4");
    split_heads("k", "kh", "2");
    split_heads("v", "vh", "2");
    rotate("q", "4");
    rotate("k", "2");
    repeat("kr", "keys");
    repeat("vh", "values");
    line(".turned", "transpose(%.keys)", d + "[B, 4, 8, T]", "perm=[0, 1, 3, 2]");
    line(".scores", "matmul(%.qr, %.turned)", d + "[B, 4, T, T]");
    line(".scaled", "mul(%.scores, @scale)", d + "[B, 4, T, T]");
    line(".masked", "add(%.scaled, %mask)", d + "[B, 4, T, T]");
    line(".masked_f", "cast(%.masked)", "f32[B, 4, T, T]", "dtype=\"f32\"");
    line(".probs_f", "softmax(%.masked_f)", "f32[B, 4, T, T]");
    line(".probs", "cast(%.probs_f)", d + "[B, 4, T, T]", "dtype=\"" + d + "\"");
    line(".context", "matmul(%.probs, %.values)", d + "[B, 4, T, 8]");
    line(".context_t", "transpose(%.context)", d + "[B, T, 4, 8]", "perm=[0, 2, 1, 3]");
    line(".attn", "reshape(%.context_t)", d + "[B, T, 32]", "shape=[B, T, 32]");
    project("o", "attn", 16, 32);
    line(".h", "add(%" + x + ", %.o)", d + "[B, T, 16]");
    norm(prefix_ + "m", prefix_ + "h", prefix_ + "norm2");
    if (c_.merged) {
      project("gate_up", "m", 48, 16);
      part("gate", "gate_up", 0, 24);
      part("up", "gate_up", 24, 48);
    } else {
      project("gate", "m", 24, 16);
      project("up", "m", 24, 16);
    }
    line(".act", "silu(%.gate)", d + "[B, T, 24]");
    line(".gated", "mul(%.act, %.up)", d + "[B, T, 24]");
    project("down", "gated", 16, 24);
    line(".sum", "add(%.h, %.down)", d + "[B, T, 16]");
    return prefix_ + "sum";
  }

  ExportedLlamaConfig c_;
  std::string constants_, body_, prefix_;
  int layer_ = -1;
};

inline std::unique_ptr<Graph> exported_llama(const ExportedLlamaConfig& config = {}) {
  std::unique_ptr<Graph> graph = parse_graph(ExportedLlama(config).text());
  fill_constants(*graph);
  return graph;
}

}  // namespace atb::test
