// SPDX-License-Identifier: Apache-2.0
// A graph text with most of what the text form has, printed as the printer prints it.
#pragma once

namespace atb::testing {

constexpr const char* kDemoText = R"(graph @demo(%ids: i32[B, T], %x: f32[B, T, 64]) {
  symbols B in [1, 4], T in [1, 8192]
  const @table : f32[100, 64] q8_0
  const @w : f32[64]
  const @half : f32[] = 0.5
  const @steps : i32[3] = [1, -2, 3]
  %e = embedding(%ids, @table) {layer=0, scope="model.embed \"x\""} : f32[B, T, 64]
  %n, %sum = fused_add_norm(%e, %x, @w) {layer=1, eps=1e-05, kind="rms"} : f32[B, T, 64], f32[B, T, 64]
  %ln = layer_norm(%n, _, @w) {eps=0.001} : f32[B, T, 64]
  %flat = reshape(%ln) {shape=[B*T, 64]} : f32[B*T, 64]
  %t = transpose(%flat) {perm=[1, 0]} : f32[64, B*T]
  %s = mul(%t, @half) : f32[64, B*T]
  %r = sub(@steps, @steps) : i32[3]
  return %s as logits, %sum, %r
}
)";

}  // namespace atb::testing
