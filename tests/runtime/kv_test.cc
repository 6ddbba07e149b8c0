// SPDX-License-Identifier: Apache-2.0
// KV blocks and sequences: reuse, zero fill, sharing and copy on write, failure that changes nothing, messages (B57).
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "runtime/kv/block_pool.h"
#include "runtime/kv/sequence.h"

namespace atb {
namespace {

// 2 * 2 * 3 * 16 * 4 * 4 = 3072 bytes a block of 16 tokens.
KvLayout small_layout() { return {.dtype = DType::kF32, .slots = 2, .kv_heads = 3, .head_dim = 4, .block_tokens = 16}; }

std::string error_text(Code code, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(KvBlockPool, BlocksAreDistinctZeroAndStable) {
  KvBlockPool pool(small_layout(), 20000);  // more than one slab
  std::vector<std::byte*> addresses;
  for (int i = 0; i < 20000; ++i) {
    const int32_t block = pool.allocate();
    addresses.push_back(pool.data(block));
    if (i % 997 == 0) {
      for (size_t j = 0; j < pool.layout().block_bytes(); ++j) ASSERT_EQ(pool.data(block)[j], std::byte{0});
    }
    std::memset(pool.data(block), 0xff, pool.layout().block_bytes());
  }
  EXPECT_EQ(std::set<std::byte*>(addresses.begin(), addresses.end()).size(), 20000u);
  EXPECT_EQ(pool.data(0), addresses[0]);
  const KvPoolStats stats = pool.stats();
  EXPECT_EQ(stats.in_use, 20000);
  EXPECT_EQ(stats.resident_bytes, 20000u * 3072u);
  EXPECT_NE(error_text(Code::kResourceExhausted, [&] { pool.allocate(); }).find("have 0 free of 20000"),
            std::string::npos);
}

TEST(KvBlockPool, LastFreedIsReusedFirstAndIsZeroAgain) {
  KvBlockPool pool(small_layout(), 8);
  const int32_t a = pool.allocate(), b = pool.allocate();
  std::memset(pool.data(a), 0xff, pool.layout().block_bytes());
  std::memset(pool.data(b), 0xff, pool.layout().block_bytes());
  pool.release(b);
  pool.release(a);
  EXPECT_EQ(pool.in_use(), 0);
  EXPECT_EQ(pool.allocate(), a);
  for (size_t j = 0; j < pool.layout().block_bytes(); ++j) ASSERT_EQ(pool.data(a)[j], std::byte{0});
}

TEST(KvBlockPool, OwnersAreCounted) {
  KvBlockPool pool(small_layout(), 2);
  const int32_t a = pool.allocate();
  pool.retain(a);
  pool.release(a);
  EXPECT_EQ(pool.in_use(), 1);
  std::memset(pool.data(a), 5, pool.layout().block_bytes());
  const int32_t copy = pool.allocate_copy(a);
  EXPECT_NE(copy, a);
  EXPECT_EQ(std::memcmp(pool.data(a), pool.data(copy), pool.layout().block_bytes()), 0);
  pool.release(a);
  EXPECT_EQ(pool.in_use(), 1);
  EXPECT_EQ(pool.stats().peak, 2);
}

TEST(KvBlockPool, TrimmedBlocksAreZeroAndNeighboursIntact) {
  KvLayout layout = small_layout();
  layout.slots = 13;  // 19968 bytes: blocks begin and end inside pages
  KvBlockPool pool(layout, 300);
  std::vector<int32_t> blocks;
  for (int i = 0; i < 300; ++i) {
    blocks.push_back(pool.allocate());
    std::memset(pool.data(blocks.back()), 7, layout.block_bytes());
  }
  for (int i = 0; i < 300; i += 2) pool.release(blocks[static_cast<size_t>(i)]);
  EXPECT_GT(pool.trim(), 150u * 8192u);
  EXPECT_EQ(pool.stats().resident_bytes, 150u * layout.block_bytes());
  for (int i = 1; i < 300; i += 2) {
    for (size_t j = 0; j < layout.block_bytes(); ++j)
      ASSERT_EQ(pool.data(blocks[static_cast<size_t>(i)])[j], std::byte{7});
  }
  for (int i = 0; i < 150; ++i) {
    const int32_t block = pool.allocate();
    for (size_t j = 0; j < layout.block_bytes(); ++j) ASSERT_EQ(pool.data(block)[j], std::byte{0});
  }
}

TEST(KvBlockPool, BadLayoutsAreRefused) {
  const auto refused = [](auto change) {
    KvLayout layout = small_layout();
    change(layout);
    return error_text(Code::kInvalidArgument, [&] { KvBlockPool pool(layout, 4); });
  };
  EXPECT_NE(refused([](KvLayout& l) { l.dtype = DType::kF16; }).find("dtype is f16"), std::string::npos);
  EXPECT_NE(refused([](KvLayout& l) { l.slots = 0; }).find("slots is 0"), std::string::npos);
  EXPECT_NE(refused([](KvLayout& l) { l.kv_heads = -1; }).find("kv_heads is -1"), std::string::npos);
  EXPECT_NE(refused([](KvLayout& l) { l.head_dim = 0; }).find("head_dim is 0"), std::string::npos);
  for (int64_t tokens : {0, 8, 24, 48, 256, -16}) {
    EXPECT_NE(refused([&](KvLayout& l) { l.block_tokens = tokens; }).find("block_tokens"), std::string::npos);
  }
  EXPECT_NE(refused([](KvLayout& l) { l.slots = l.head_dim = int64_t{1} << 40; }).find("2^48"), std::string::npos);
  error_text(Code::kInvalidArgument, [] { KvBlockPool pool(small_layout(), 0); });
  error_text(Code::kInvalidArgument, [] { KvBlockPool pool(small_layout(), int64_t{1} << 40); });
}

TEST(KvSequence, GrowsCommitsTruncatesAndGivesBack) {
  KvBlockPool pool(small_layout(), 8);
  {
    KvSequence sequence(pool);
    sequence.ensure(0);
    EXPECT_EQ(pool.in_use(), 0);
    sequence.ensure(17);
    EXPECT_EQ(pool.in_use(), 2);
    EXPECT_EQ(sequence.capacity(), 32);
    EXPECT_EQ(sequence.blocks()[1], pool.data(sequence.block_ids()[1]));
    EXPECT_EQ(sequence.length(), 0);  // until committed
    sequence.commit(17);
    sequence.ensure(32);
    EXPECT_EQ(pool.in_use(), 2);
    sequence.truncate(16);
    EXPECT_EQ(pool.in_use(), 1);
    KvSequence moved = std::move(sequence);
    EXPECT_EQ(moved.length(), 16);
    error_text(Code::kInternal, [&] { moved.truncate(17); });
    error_text(Code::kInternal, [&] { moved.commit(1); });
  }
  EXPECT_EQ(pool.in_use(), 0);
}

TEST(KvSequence, ForksShareUntilWritten) {
  KvBlockPool pool(small_layout(), 8);
  KvSequence parent(pool);
  parent.ensure(40);
  parent.commit(20);  // one full block, one partial, one reserved
  std::memset(parent.blocks()[1], 9, pool.layout().block_bytes());
  KvSequence child = parent.fork();
  EXPECT_EQ(child.length(), 20);
  EXPECT_EQ(pool.in_use(), 3);
  child.ensure(21);
  EXPECT_EQ(pool.in_use(), 4);
  EXPECT_EQ(child.blocks()[0], parent.blocks()[0]);
  EXPECT_NE(child.blocks()[1], parent.blocks()[1]);
  EXPECT_EQ(std::memcmp(child.blocks()[1], parent.blocks()[1], pool.layout().block_bytes()), 0);
  const std::byte* before = parent.blocks()[1];
  parent.ensure(21);  // the child has its own by now: nothing to copy
  EXPECT_EQ(parent.blocks()[1], before);
  child = KvSequence(pool);
  EXPECT_EQ(pool.in_use(), 3);
}

TEST(KvSequence, AForkAtABlockBoundaryCopiesNothing) {
  KvBlockPool pool(small_layout(), 3);
  KvSequence parent(pool);
  parent.ensure(16);
  parent.commit(16);
  KvSequence child = parent.fork();
  child.ensure(17);
  parent.ensure(17);
  EXPECT_EQ(pool.in_use(), 3);
  EXPECT_EQ(child.blocks()[0], parent.blocks()[0]);
  EXPECT_NE(child.blocks()[1], parent.blocks()[1]);
}

TEST(KvSequence, AFailedEnsureChangesNothingAndSaysWhatFits) {
  KvBlockPool pool(small_layout(), 4);
  KvSequence other(pool), sequence(pool);
  other.ensure(16);
  sequence.ensure(16);
  sequence.commit(16);
  const std::string text = error_text(Code::kResourceExhausted, [&] { sequence.ensure(64); });
  EXPECT_EQ(pool.in_use(), 2);
  EXPECT_EQ(sequence.capacity(), 16);
  EXPECT_NE(text.find("needs 3 more blocks of 16 tokens, 9216 bytes, have 2 free, 6144 bytes, limit 4"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("fits now is 48 tokens; wait"), std::string::npos) << text;
  sequence.ensure(48);  // what the message promised
  error_text(Code::kResourceExhausted, [&] { sequence.ensure(49); });
  const std::string never = error_text(Code::kResourceExhausted, [&] { other.ensure(int64_t{1} << 62); });
  EXPECT_NE(never.find("use a shorter context"), std::string::npos) << never;
}

TEST(KvSequence, ASharedLastBlockThatCannotBeCopiedIsAnError) {
  KvBlockPool pool(small_layout(), 1);
  KvSequence parent(pool);
  parent.ensure(10);
  parent.commit(10);
  KvSequence child = parent.fork();
  const std::string text = error_text(Code::kResourceExhausted, [&] { child.ensure(11); });
  EXPECT_NE(text.find("fits now is 10 tokens"), std::string::npos) << text;
  EXPECT_EQ(pool.owners(child.block_ids()[0]), 2);
}

// Sequences that fork, grow, shrink and end at random hold exactly their own contents, and every block comes back.
TEST(KvSequence, RandomForestKeepsItsContents) {
  KvBlockPool pool(small_layout(), 64);
  struct Item {
    KvSequence sequence;
    std::vector<int> tokens;  // what position i holds, written into the first byte of its V row
  };
  const auto cell = [&](const KvSequence& sequence, int64_t position) {
    return sequence.blocks()[position / 16] + pool.layout().v_row(0, position % 16);
  };
  std::vector<Item> items;
  std::mt19937 random(3);
  for (int round = 0; round < 5000; ++round) {
    const unsigned action = random() % 10;
    if (items.empty() || action == 0) {
      items.push_back({KvSequence(pool), {}});
    } else if (action == 1 && items.size() < 12) {
      Item& source = items[random() % items.size()];
      Item copy{source.sequence.fork(), source.tokens};
      items.push_back(std::move(copy));
    } else if (action == 2) {
      std::swap(items[random() % items.size()], items.back());
      items.pop_back();
    } else if (action == 3) {
      Item& item = items[random() % items.size()];
      item.tokens.resize(random() % (item.tokens.size() + 1));
      item.sequence.truncate(static_cast<int64_t>(item.tokens.size()));
    } else {
      Item& item = items[random() % items.size()];
      const int64_t rows = 1 + random() % 20, past = item.sequence.length();
      try {
        item.sequence.ensure(past + rows);
      } catch (const Error&) {
        continue;
      }
      for (int64_t i = 0; i < rows; ++i) {
        item.tokens.push_back(static_cast<int>(random() % 256));
        *cell(item.sequence, past + i) = static_cast<std::byte>(item.tokens.back());
      }
      item.sequence.commit(rows);
    }
    for (const Item& item : items) {
      for (size_t i = 0; i < item.tokens.size(); ++i) {
        ASSERT_EQ(static_cast<int>(*cell(item.sequence, static_cast<int64_t>(i))), item.tokens[i]);
      }
    }
  }
  items.clear();
  EXPECT_EQ(pool.in_use(), 0);
}

// Public fault B57: default KV space below one full-length request.
TEST(KvCapacity, TheMessageHasNeedHaveAndTheLargestLength) {
  const KvLayout layout{.dtype = DType::kBF16, .slots = 28, .kv_heads = 8, .head_dim = 128, .block_tokens = 128};
  const std::string text =
      error_text(Code::kResourceExhausted, [&] { require_kv_capacity(layout, 40960, size_t{4} << 30); });
  EXPECT_NE(text.find("needs 4697620480 bytes (4.375 GiB)"), std::string::npos) << text;
  EXPECT_NE(text.find("have 4294967296 bytes (4.000 GiB)"), std::string::npos) << text;
  EXPECT_NE(text.find("37449 tokens (37376 in blocks of 128)"), std::string::npos) << text;
  EXPECT_NO_THROW(require_kv_capacity(layout, 37376, size_t{4} << 30));
  error_text(Code::kResourceExhausted, [&] { require_kv_capacity(layout, 37377, size_t{4} << 30); });
  error_text(Code::kResourceExhausted, [&] { require_kv_capacity(layout, int64_t{1} << 62, size_t{4} << 30); });
  error_text(Code::kInvalidArgument, [&] { require_kv_capacity(layout, -1, size_t{4} << 30); });
}

}  // namespace
}  // namespace atb
