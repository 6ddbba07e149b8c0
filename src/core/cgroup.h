// SPDX-License-Identifier: Apache-2.0
// Limits that Linux control groups (v1, v2 or both mounted) put on this process: CPU quota and memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace atb {

// Where to look; tests point these at a directory of their own.
struct CgroupPaths {
  std::string root = "/sys/fs/cgroup";           // where the hierarchies are mounted
  std::string membership = "/proc/self/cgroup";  // which group the process is in, per hierarchy
};

// CPUs' worth of time per period that the tightest enclosing group grants (cpu.max, or cpu.cfs_quota_us over
// cpu.cfs_period_us); none without a limit or without control groups. Never throws on odd contents: they are no limit.
std::optional<double> cgroup_cpu_quota(const CgroupPaths& paths = {});

// Bytes that may still be allocated before the tightest enclosing memory limit (memory.max, or
// memory.limit_in_bytes), page cache that the kernel can drop counted as free; none without a limit.
std::optional<uint64_t> cgroup_memory_headroom(const CgroupPaths& paths = {});

}  // namespace atb
