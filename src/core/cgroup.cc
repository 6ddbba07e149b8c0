// SPDX-License-Identifier: Apache-2.0
// Reads control group files. File names and meanings: Linux Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst.
#include "core/cgroup.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>
#include <string_view>
#include <vector>

namespace atb {
namespace {

// The first `count` words of a file; fewer when it is shorter or missing.
std::vector<std::string> read_words(const std::string& path, size_t count) {
  std::vector<std::string> words;
  std::ifstream in(path);
  std::string word;
  while (words.size() < count && in >> word) words.push_back(word);
  return words;
}

// A non-negative number; none for "max", "-1" (v1: no limit) and anything else.
std::optional<double> parse_amount(const std::string& word) {
  std::istringstream in(word);
  double value = 0;
  if (!(in >> value) || !in.eof() || !(value >= 0)) return std::nullopt;
  return value;
}

std::optional<double> read_amount(const std::string& path) {
  const auto words = read_words(path, 1);
  return words.empty() ? std::nullopt : parse_amount(words[0]);
}

// The value that follows `key` in a "key value" per line file.
std::optional<double> read_keyed(const std::string& path, std::string_view key) {
  std::ifstream in(path);
  std::string name, value;
  while (in >> name >> value) {
    if (name == key) return parse_amount(value);
  }
  return std::nullopt;
}

bool lists(const std::string& controllers, std::string_view wanted) {
  std::istringstream in(controllers);
  std::string item;
  while (std::getline(in, item, ',')) {
    if (item == wanted) return true;
  }
  return false;
}

struct Group {
  std::string hierarchy;  // directory of the hierarchy's root group
  std::string path;       // "/a/b" under it
};

// Groups that may carry limits of `controller`: its v1 hierarchy and the unified one. `v2` says which kind is wanted.
std::vector<Group> find_groups(const CgroupPaths& paths, std::string_view controller, bool v2) {
  std::vector<Group> groups;
  std::ifstream in(paths.membership);
  std::string line;
  while (std::getline(in, line)) {
    // "4:cpu,cpuacct:/user" or "0::/user".
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    // A group outside our namespace shows as "/../..": only the mounted root can be seen.
    if (path.find("..") != std::string::npos || path.empty() || path[0] != '/') path = "/";
    if (controllers.empty()) {
      if (!v2) continue;
      groups.push_back({paths.root, path});
      groups.push_back({paths.root + "/unified", path});
    } else if (!v2 && lists(controllers, controller)) {
      groups.push_back({paths.root + "/" + controllers, path});
      if (controllers != controller) groups.push_back({paths.root + "/" + std::string(controller), path});
    }
  }
  return groups;
}

// The smallest `limit(directory)` over a group and all groups that enclose it.
std::optional<double> tightest(const std::vector<Group>& groups,
                               const std::function<std::optional<double>(const std::string&)>& limit) {
  std::optional<double> result;
  for (const Group& group : groups) {
    std::string path = group.path == "/" ? "" : group.path;
    for (;;) {
      if (const auto value = limit(group.hierarchy + path)) result = result ? std::min(*result, *value) : *value;
      if (path.empty()) break;
      path.resize(path.rfind('/'));
    }
  }
  return result;
}

std::optional<double> smaller(std::optional<double> a, std::optional<double> b) {
  if (a && b) return std::min(*a, *b);
  return a ? a : b;
}

std::optional<double> quota_v2(const std::string& dir) {
  const auto words = read_words(dir + "/cpu.max", 2);
  if (words.empty()) return std::nullopt;
  const auto quota = parse_amount(words[0]);
  const auto period = words.size() > 1 ? parse_amount(words[1]) : std::optional<double>(100000);  // documented default
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return *quota / *period;
}

std::optional<double> quota_v1(const std::string& dir) {
  const auto quota = read_amount(dir + "/cpu.cfs_quota_us");
  const auto period = read_amount(dir + "/cpu.cfs_period_us");
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return *quota / *period;
}

std::optional<double> headroom(const std::string& dir, const char* limit_file, const char* usage_file,
                               std::string_view cache_key) {
  const auto limit = read_amount(dir + "/" + limit_file);
  if (!limit || *limit >= 9.0e18) return std::nullopt;  // v1 writes "no limit" as LONG_MAX rounded down to a page
  const double used = read_amount(dir + "/" + usage_file).value_or(0);
  const double droppable = read_keyed(dir + "/memory.stat", cache_key).value_or(0);
  return std::max(0.0, *limit - std::max(0.0, used - droppable));
}

}  // namespace

std::optional<double> cgroup_cpu_quota(const CgroupPaths& paths) {
  return smaller(tightest(find_groups(paths, "cpu", true), quota_v2),
                 tightest(find_groups(paths, "cpu", false), quota_v1));
}

std::optional<uint64_t> cgroup_memory_headroom(const CgroupPaths& paths) {
  const auto v2 = tightest(find_groups(paths, "memory", true), [](const std::string& dir) {
    return headroom(dir, "memory.max", "memory.current", "inactive_file");
  });
  const auto v1 = tightest(find_groups(paths, "memory", false), [](const std::string& dir) {
    return headroom(dir, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file");
  });
  const auto bytes = smaller(v2, v1);
  if (!bytes) return std::nullopt;
  return static_cast<uint64_t>(*bytes);
}

}  // namespace atb
