// SPDX-License-Identifier: Apache-2.0
// The public KvCache: slots of blocks by the number of the block.
#include "atb/kv_cache.h"

#include <algorithm>

#include "api/kv_cache_impl.h"
#include "core/error.h"

namespace atb {
namespace {

KvSlotsOptions slots_options(const KvCacheOptions& options) {
  const bool known = options.type == ElementType::kF32 || options.type == ElementType::kBF16;
  require(known, Code::kInvalidArgument, "[kv] the cache's type is neither kF32 nor kBF16; choose one of them");
  return {options.layers, options.heads, options.head_dim, options.max_tokens,
          options.type == ElementType::kF32 ? DType::kF32 : DType::kBF16};
}

}  // namespace

std::vector<int64_t> KvCache::Impl::slots_of(uint64_t block, int64_t count, int64_t heads, int64_t head_dim) {
  require(heads == options.heads && head_dim == options.head_dim, Code::kInvalidArgument,
          "[kv] the block's attention has ", heads, " heads of keys of ", head_dim, " features, the cache ",
          options.heads, " of ", options.head_dim, "; make the cache with the attention's");
  const std::lock_guard held(mutex);
  std::vector<int64_t>& own = owners[block];
  if (!own.empty()) return own;
  if (taken + count > options.layers) {
    owners.erase(block);
    throw_error(Code::kInvalidArgument, "[kv] a block needs ", count, " of the cache's layers, ", taken, " of ",
                options.layers, " belong to other blocks; make it larger, or reset() it before another model");
  }
  while (static_cast<int64_t>(own.size()) < count) own.push_back(taken++);
  return own;
}

int64_t KvCache::Impl::held_by(uint64_t block) const {
  const std::lock_guard held(mutex);
  const auto own = owners.find(block);
  if (own == owners.end()) return 0;
  const int64_t length = slots->length(own->second.front());
  for (const int64_t slot : own->second) {
    require(slots->length(slot) == length, Code::kFailedPrecondition, "[kv] the layers of a block hold ", length,
            " and ", slots->length(slot), " tokens; truncate() the cache so that they agree");
  }
  return length;
}

int64_t KvCache::Impl::first_slot(uint64_t block) const {
  const std::lock_guard held(mutex);
  const auto own = owners.find(block);
  return own == owners.end() ? taken : own->second.front();
}

KvCache::KvCache(const KvCacheOptions& options)
    : impl_(new Impl{.options = options, .slots = std::make_unique<KvSlots>(slots_options(options)), .mutex = {}}) {}

KvCache::KvCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KvCache::~KvCache() = default;
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;

const KvCacheOptions& KvCache::options() const { return impl_->options; }

int64_t KvCache::length() const {
  const std::lock_guard held(impl_->mutex);
  int64_t length = impl_->taken == 0 ? 0 : impl_->slots->length(0);
  for (int64_t slot = 1; slot < impl_->taken; ++slot) length = std::min(length, impl_->slots->length(slot));
  return length;
}

int64_t KvCache::batch() const { return impl_->slots->batch(); }
int64_t KvCache::blocks_in_use() const { return impl_->slots->blocks_in_use(); }
int64_t KvCache::shared_blocks() const { return impl_->slots->shared_blocks(); }
void KvCache::truncate(int64_t tokens) { impl_->slots->truncate(tokens); }

void KvCache::reset() {
  impl_->slots->reset();
  const std::lock_guard held(impl_->mutex);
  impl_->owners.clear();
  impl_->taken = 0;
}

KvCache KvCache::fork() const {
  std::unique_ptr<Impl> twin(new Impl{.options = impl_->options, .slots = impl_->slots->fork(), .mutex = {}});
  const std::lock_guard held(impl_->mutex);
  twin->owners = impl_->owners;
  twin->taken = impl_->taken;
  return KvCache(std::move(twin));
}

}  // namespace atb
