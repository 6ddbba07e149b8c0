// SPDX-License-Identifier: Apache-2.0
// Tells the CPU that the thread is spinning (10-60 ns).
#pragma once

namespace atb {

inline void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace atb
