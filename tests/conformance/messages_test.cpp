#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/engine/backends.h"

#include "conformance/message_support.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using test::as_bytes_buffer;
using test::of_dtype;
using test::pattern;
using test::run_ranks;
using test::World;
using ::testing::Each;

using Kind = PointToPointOperation::Kind;

class Messages : public ::testing::TestWithParam<World> {};

INSTANTIATE_TEST_SUITE_P(Layouts,
                         Messages,
                         ::testing::ValuesIn(test::message_layouts()),
                         ::testing::PrintToStringParamName());

TEST_P(Messages, OfAnySizePassBetweenAnyTwoRanks) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    for (const std::size_t n_bytes :
         {0U, 1U, 8U, 40U, 41U, 8192U, 8193U, 65536U, 65537U, 300'000U, 5'000'001U}) {
      for (int from = 0; from < 4; ++from) {
        for (int to = 0; to < 4; ++to) {
          if (group.rank() == from && from != to) {
            std::vector<std::byte> bytes = pattern(n_bytes, from, to, 0);
            group.send(as_bytes_buffer(bytes), to);
          } else if (group.rank() == to && from != to) {
            std::vector<std::byte> bytes(n_bytes);
            EXPECT_EQ(group.recv(as_bytes_buffer(bytes), from), from);
            EXPECT_EQ(bytes, pattern(n_bytes, from, to, 0)) << n_bytes;
          }
        }
      }
    }
  });
}

TEST_P(Messages, OfSixtyFourMebibytesPass) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    constexpr std::size_t kBytes = 64 << 20;
    if (group.rank() == 0) {
      std::vector<std::byte> bytes = pattern(kBytes, 0, 3, 0);
      group.send(as_bytes_buffer(bytes), 3);
    } else if (group.rank() == 3) {
      std::vector<std::byte> bytes(kBytes);
      group.recv(as_bytes_buffer(bytes), 0);
      EXPECT_TRUE(bytes == pattern(kBytes, 0, 3, 0));
    }
  });
}

TEST_P(Messages, OfAllDTypesPass) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    const int next = (group.rank() + 1) % 4;
    const int previous = (group.rank() + 3) % 4;
    for (int i = 0; i < kDTypeCount; ++i) {
      const auto dtype = static_cast<DType>(i);
      for (const std::size_t count : {3U, 10'000U}) {
        const std::size_t n_bytes = count * size_of(dtype);
        std::vector<std::byte> sent = pattern(n_bytes, group.rank(), next, i);
        std::vector<std::byte> received(n_bytes);
        const Work work = group.send_async(of_dtype(sent, dtype), next, {.tag = i});
        group.recv(of_dtype(received, dtype), previous, {.tag = i});
        work.wait();
        EXPECT_EQ(received, pattern(n_bytes, previous, group.rank(), i)) << to_string(dtype);
      }
    }
  });
}

// Each buffer is in private or symmetric memory: four combinations.
TEST_P(Messages, OfSymmetricMemoryPassLikeOthers) {
  if (engine::look_up_backend(GetParam().backend).capabilities.devices.has(DeviceType::kCuda)) {
    GTEST_SKIP() << "backend " << GetParam().backend << " allocates on GPUs";
  }
  run_ranks(GetParam(), [](ProcessGroup& group) {
    constexpr std::size_t kBytes = 3'000'000;
    const int next = (group.rank() + 1) % 4;
    const int previous = (group.rank() + 3) % 4;
    for (int way = 0; way < 4; ++way) {
      std::vector<std::byte> sent = pattern(kBytes, group.rank(), next, way);
      std::vector<std::byte> received(kBytes);
      Buffer in = as_bytes_buffer(sent);
      Buffer out = as_bytes_buffer(received);
      if ((way & 1) != 0) {
        in = group.allocate(in.count, in.dtype);
        std::copy(sent.begin(), sent.end(), static_cast<std::byte*>(in.data));
      }
      if ((way & 2) != 0) {
        out = group.allocate(out.count, out.dtype);
      }
      const Work work = group.send_async(in, next);
      group.recv(out, previous);
      work.wait();
      const auto* const bytes = static_cast<const std::byte*>(out.data);
      EXPECT_TRUE(
          std::equal(bytes, bytes + kBytes, pattern(kBytes, previous, group.rank(), way).begin()))
          << way;
    }
  });
}

// Small and large messages alternate. Later messages must not overtake a large message that was
// only announced.
TEST_P(Messages, WithOneTagArriveInTheirOrder) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    constexpr int kMessages = 60;
    const auto n_bytes = [](int i) { return std::size_t{i % 3 == 2 ? 200'000U : 100U}; };
    if (group.rank() == 1) {
      std::vector<std::vector<std::byte>> sent;
      std::vector<Work> works;
      for (int i = 0; i < kMessages; ++i) {
        sent.push_back(pattern(n_bytes(i), 1, 2, i));
        works.push_back(group.send_async(as_bytes_buffer(sent.back()), 2, {.tag = 7}));
      }
      for (const Work& work : works) {
        work.wait();
      }
    } else if (group.rank() == 2) {
      for (int i = 0; i < kMessages; ++i) {
        std::vector<std::byte> bytes(n_bytes(i));
        group.recv(as_bytes_buffer(bytes), i % 2 == 0 ? 1 : kAnySource, {.tag = 7});
        EXPECT_EQ(bytes, pattern(n_bytes(i), 1, 2, i)) << i;
      }
    }
  });
}

TEST_P(Messages, AreReceivedByTagInAnyOrder) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    constexpr int kTags = 50;
    const auto n_bytes = [](int tag) { return std::size_t{tag % 5 == 0 ? 100'000U : 64U}; };
    if (group.rank() == 3) {
      std::vector<std::vector<std::byte>> sent;
      std::vector<Work> works;
      for (int tag = 0; tag < kTags; ++tag) {
        sent.push_back(pattern(n_bytes(tag), 3, 0, tag));
        works.push_back(group.send_async(as_bytes_buffer(sent.back()), 0, {.tag = tag}));
      }
      for (const Work& work : works) {
        work.wait();
      }
    } else if (group.rank() == 0) {
      for (int tag = kTags - 1; tag >= 0; --tag) {
        std::vector<std::byte> bytes(n_bytes(tag));
        group.recv(as_bytes_buffer(bytes), 3, {.tag = tag});
        EXPECT_EQ(bytes, pattern(n_bytes(tag), 3, 0, tag)) << tag;
      }
    }
  });
}

// More messages than a peer buffers for a rank. The message behind these must still arrive.
TEST_P(Messages, BehindManyThatNobodyReceivesComeThrough) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    constexpr int kMessages = 400;
    constexpr std::size_t kBytes = 8000;
    if (group.rank() == 0) {
      std::vector<std::vector<std::byte>> sent;
      std::vector<Work> works;
      for (int i = 0; i < kMessages; ++i) {
        sent.push_back(pattern(kBytes, 0, 1, i));
        works.push_back(group.send_async(as_bytes_buffer(sent.back()), 1, {.tag = 1}));
      }
      std::uint8_t last = 42;
      group.send(as_buffer(std::span(&last, 1)), 1, {.tag = 2});
      for (const Work& work : works) {
        work.wait();
      }
    } else if (group.rank() == 1) {
      std::uint8_t last = 0;
      group.recv(as_buffer(std::span(&last, 1)), 0, {.tag = 2});
      EXPECT_EQ(last, 42);
      for (int i = 0; i < kMessages; ++i) {
        std::vector<std::byte> bytes(kBytes);
        group.recv(as_bytes_buffer(bytes), 0, {.tag = 1});
        EXPECT_EQ(bytes, pattern(kBytes, 0, 1, i)) << i;
      }
    }
  });
}

TEST_P(Messages, FromAnySourceSayWhoSentThemAndLeaveNobodyOut) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    constexpr int kMessages = 200;
    if (group.rank() != 2) {
      for (int i = 0; i < kMessages; ++i) {
        std::int32_t value = group.rank() * 1000 + i;
        group.send(as_buffer(std::span(&value, 1)), 2);
      }
      return;
    }
    // All messages have arrived before the first receive: no rank sends more than the receiver
    // buffers.
    std::vector<int> next(4, 0);
    std::vector<int> sources;
    for (int i = 0; i < 3 * kMessages; ++i) {
      std::int32_t value = -1;
      int source = -1;
      if (i % 2 == 0) {
        source = group.recv(as_buffer(std::span(&value, 1)), kAnySource);
      } else {
        const Work work = group.recv_async(as_buffer(std::span(&value, 1)), kAnySource);
        work.wait();
        source = work.source_rank();
      }
      ASSERT_TRUE(source == 0 || source == 1 || source == 3) << source;
      sources.push_back(source);
      EXPECT_EQ(value, source * 1000 + next[static_cast<std::size_t>(source)]++);
    }
  });
}

// Unexpected messages that are present when the receives are posted are taken from each source in
// turn.
TEST_P(Messages, FromAnySourceAreTakenInTurn) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    constexpr int kMessages = 30;
    std::int32_t value = group.rank();
    const Buffer buffer = as_buffer(std::span(&value, 1));
    if (group.rank() != 0) {
      for (int i = 0; i < kMessages; ++i) {
        group.send(buffer, 0, {.tag = 1});
      }
      group.send(buffer, 0, {.tag = 2});
      return;
    }
    // These messages come after all messages with tag 1.
    for (const int from : {1, 2, 3}) {
      group.recv(buffer, from, {.tag = 2});
    }
    std::vector<int> n_taken(4, 0);
    for (int i = 0; i < 3 * kMessages; ++i) {
      ++n_taken[static_cast<std::size_t>(group.recv(buffer, kAnySource, {.tag = 1}))];
      EXPECT_LE(*std::max_element(n_taken.begin() + 1, n_taken.end()) -
                    *std::min_element(n_taken.begin() + 1, n_taken.end()),
                1);
    }
  });
}

TEST_P(Messages, InGreatNumberEndInAnyOrderOfWaiting) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    constexpr int kMessages = 100;
    const int peer = 3 - group.rank();
    const auto n_bytes = [](int i) { return std::size_t{i % 10 == 0 ? 150'000U : 300U}; };
    std::vector<std::vector<std::byte>> sent;
    std::vector<std::vector<std::byte>> received;
    std::vector<Work> works;
    for (int i = 0; i < kMessages; ++i) {
      received.emplace_back(n_bytes(i));
      sent.push_back(pattern(n_bytes(i), group.rank(), peer, i));
    }
    for (int i = 0; i < kMessages; ++i) {
      const auto at = static_cast<std::size_t>(i);
      works.push_back(group.recv_async(as_bytes_buffer(received[at]), peer, {.tag = i % 7}));
      works.push_back(group.send_async(as_bytes_buffer(sent[at]), peer, {.tag = i % 7}));
    }
    std::vector<std::size_t> order(works.size());
    std::iota(order.begin(), order.end(), 0U);
    std::shuffle(
        order.begin(), order.end(), std::minstd_rand(42U + static_cast<unsigned>(group.rank())));
    for (const std::size_t i : order) {
      works[i].wait();
      EXPECT_TRUE(works[i].is_completed());
    }
    for (int i = 0; i < kMessages; ++i) {
      EXPECT_EQ(received[static_cast<std::size_t>(i)], pattern(n_bytes(i), peer, group.rank(), i))
          << i;
    }
  });
}

TEST_P(Messages, DoNotWaitForEachOtherWhenAllSendFirst) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    for (const std::size_t n_bytes : {16U, 2'000'000U}) {
      std::vector<std::vector<std::byte>> sent;
      std::vector<Work> works;
      for (int to = 0; to < 4; ++to) {
        sent.push_back(pattern(n_bytes, group.rank(), to, 0));
        works.push_back(group.send_async(as_bytes_buffer(sent.back()), to));
      }
      for (int from = 3; from >= 0; --from) {
        std::vector<std::byte> bytes(n_bytes);
        group.recv(as_bytes_buffer(bytes), from);
        EXPECT_EQ(bytes, pattern(n_bytes, from, group.rank(), 0));
      }
      for (const Work& work : works) {
        work.wait();
      }
    }
  });
}

TEST_P(Messages, ToOneselfArrive) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    for (const std::size_t n_bytes : {0U, 8U, 20'000U, 3'000'000U}) {
      std::vector<std::byte> sent = pattern(n_bytes, 0, 0, group.rank());
      std::vector<std::byte> received(n_bytes);
      const Work send = group.send_async(as_bytes_buffer(sent), group.rank());
      const Work recv = group.recv_async(as_bytes_buffer(received), group.rank());
      send.wait();
      recv.wait();
      EXPECT_EQ(recv.source_rank(), group.rank());
      EXPECT_EQ(received, sent);
    }
    // A small message is sent without a posted receive.
    std::int64_t value = 5;
    group.send(as_buffer(std::span(&value, 1)), group.rank());
    value = 0;
    EXPECT_EQ(group.recv(as_buffer(std::span(&value, 1)), kAnySource), group.rank());
    EXPECT_EQ(value, 5);
  });
}

TEST_P(Messages, OfABatchShiftAlongTheRing) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    const int next = (group.rank() + 1) % 4;
    const int previous = (group.rank() + 3) % 4;
    for (const std::size_t n_bytes : {24U, 1'000'000U}) {
      std::vector<std::byte> sent = pattern(n_bytes, group.rank(), next, 0);
      std::vector<std::byte> received(n_bytes);
      const std::vector<PointToPointOperation> operations{
          {.kind = Kind::kSend, .buffer = as_bytes_buffer(sent), .peer = next},
          {.kind = Kind::kRecv, .buffer = as_bytes_buffer(received), .peer = previous}};
      const std::vector<Work> works = group.batch(operations);
      ASSERT_EQ(works.size(), 2U);
      for (const Work& work : works) {
        work.wait();
      }
      EXPECT_EQ(works[1].source_rank(), previous);
      EXPECT_EQ(received, pattern(n_bytes, previous, group.rank(), 0));
    }
  });
}

TEST_P(Messages, SentBeforeTheirRankLeftAreReceived) {
  run_ranks(GetParam(), [](ProcessGroup& group) {
    std::vector<std::int32_t> values(100, group.rank());
    const Buffer buffer = as_buffer(std::span(values));
    if (group.rank() == 1) {
      group.send(buffer, 3, {.tag = 0});
      group.send(buffer, 3, {.tag = 1});
      return;
    }
    if (group.rank() == 3) {
      group.recv(buffer, 1, {.tag = 1});
      std::fill(values.begin(), values.end(), 0);
      group.recv(buffer, 1, {.tag = 0});
      EXPECT_THAT(values, Each(1));
    }
  });
}

}  // namespace
}  // namespace unisono
