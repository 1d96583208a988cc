#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/tensor/tensor.h"

#include "rank_threads.h"

namespace unisono::testing {
namespace {

at::Tensor row(int rank) {
  return torch::full({1, 3}, rank, torch::kFloat);
}

TEST(TensorCollectives, EachMovesOrAddsUpWhatItSays) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& shared) {
    ProcessGroup& group = *shared;
    const int rank = group.rank();
    const bool is_root = rank == 1;
    const at::Tensor mine = row(rank);
    const at::Tensor both = torch::cat({row(0), row(1)});

    at::Tensor out = torch::empty({2, 3});
    all_gather(group, mine, out);
    EXPECT_TRUE(torch::equal(out, both));
    std::vector<at::Tensor> list{torch::empty({3}), torch::empty({3})};
    all_gather_async(group, mine.view({3}), list).wait();
    EXPECT_TRUE(torch::equal(torch::stack(list), both));

    out.zero_();
    gather(group, mine, is_root ? out : at::Tensor(), {.root = 1});
    EXPECT_TRUE(torch::equal(out, is_root ? both : torch::zeros({2, 3})));

    at::Tensor part = torch::empty({1, 3});
    scatter(group, is_root ? both : at::Tensor(), part, {.root = 1});
    EXPECT_TRUE(torch::equal(part, mine));

    reduce(group, mine, is_root ? part : at::Tensor(), {.root = 1});
    EXPECT_TRUE(torch::equal(part, is_root ? torch::ones({1, 3}) : mine));

    reduce_scatter(group, both, part, {.op = kSum});
    EXPECT_TRUE(torch::equal(part, 2 * mine));

    all_to_all(group, both + 10 * rank, out);
    EXPECT_TRUE(torch::equal(out, torch::cat({mine, mine + 10})));

    const std::vector<at::Tensor> outs{torch::empty({1, 3}), torch::empty({1, 3})};
    all_to_all(group, {row(10 * rank), row(10 * rank + 1)}, outs);
    EXPECT_TRUE(torch::equal(outs[0], row(rank)));
    EXPECT_TRUE(torch::equal(outs[1], row(10 + rank)));

    const Work sent = send_async(group, mine, 1 - rank);
    EXPECT_EQ(recv(group, part, 1 - rank), 1 - rank);
    EXPECT_TRUE(torch::equal(part, row(1 - rank)));
    sent.wait();
  });
}

// Returns three elements with bytes that differ from the bytes of all other ranks.
at::Tensor filled(at::ScalarType type, int rank) {
  const at::Tensor tensor = c10::isQIntType(type) ? at::_empty_affine_quantized({3}, type, 1.0, 0)
                                                  : torch::empty({3}, type);
  auto* const bytes = static_cast<std::uint8_t*>(tensor.data_ptr());
  for (std::size_t i = 0; i < tensor.nbytes(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(100 * rank + 1 + static_cast<int>(i));
  }
  return tensor;
}

void expect_same_bytes(const at::Tensor& actual, int rank) {
  const at::Tensor expected = filled(actual.scalar_type(), rank);
  EXPECT_EQ(std::memcmp(actual.data_ptr(), expected.data_ptr(), expected.nbytes()), 0)
      << c10::toString(actual.scalar_type());
}

TEST(TensorCollectives, WhatOnlyMovesElementsTakesEveryType) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& shared) {
    ProcessGroup& group = *shared;
    const int rank = group.rank();
    int n_types = 0;
    for (int number = 0; number < static_cast<int>(at::ScalarType::Undefined); ++number) {
      const auto type = static_cast<at::ScalarType>(number);
      const at::Tensor mine = filled(type, rank);
      const std::vector<at::Tensor> both{filled(type, 9), filled(type, 9)};
      const auto expect_both = [&] {
        expect_same_bytes(both[0], 0);
        expect_same_bytes(both[1], 1);
      };
      all_gather(group, mine, both);
      expect_both();
      gather(group, mine, rank == 0 ? both : std::vector<at::Tensor>());
      expect_both();
      const at::Tensor out = filled(type, 9);
      scatter(group, rank == 0 ? both : std::vector<at::Tensor>(), out);
      expect_same_bytes(out, rank);
      const std::vector<at::Tensor> exchanged{filled(type, 9), filled(type, 9)};
      all_to_all(group, {mine, mine}, exchanged);
      expect_same_bytes(exchanged[0], 0);
      expect_same_bytes(exchanged[1], 1);
      const Work sent = send_async(group, mine, 1 - rank);
      recv(group, out, 1 - rank);
      expect_same_bytes(out, 1 - rank);
      sent.wait();
      broadcast(group, out);
      expect_same_bytes(out, 1);
      ++n_types;
    }
    EXPECT_GT(n_types, 40);
  });
}

TEST(TensorCollectives, WhatComputesNamesATypeThatItDoesNotTake) {
  run_ranks(1, [](const std::shared_ptr<ProcessGroup>& group) {
    const at::Tensor tensor = filled(at::kFloat8_e4m3fn, 0);
    const auto expect_refused = [](const std::string& operation, const auto& call) {
      try {
        call();
        ADD_FAILURE() << operation << " must refuse it";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
        EXPECT_EQ(std::string(error.what()),
                  operation +
                      ": operations do not support tensors of type Float8_e4m3fn; convert "
                      "them with .to(dtype)");
      }
    };
    expect_refused("all_reduce", [&] { all_reduce(*group, tensor); });
    expect_refused("reduce", [&] { reduce(*group, tensor, tensor); });
    expect_refused("reduce_scatter", [&] { reduce_scatter(*group, tensor, tensor); });
  });
}

TEST(TensorCollectives, AutogradSeesWhatWasWritten) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& shared) {
    ProcessGroup& group = *shared;
    const at::Tensor out = torch::empty({2, 3});
    const auto version = out._version();
    all_gather(group, row(group.rank()), out);
    EXPECT_GT(out._version(), version);
  });
}

}  // namespace
}  // namespace unisono::testing
