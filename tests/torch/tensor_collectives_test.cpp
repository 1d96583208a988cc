#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/tensor/collectives.h"

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
