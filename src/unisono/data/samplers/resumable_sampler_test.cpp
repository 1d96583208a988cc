#include <algorithm>
#include <cstddef>
#include <functional>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/data/samplers/distributed_sampler.h"

#include "support/throws_error.h"

namespace unisono {
namespace {

using test::CaughtError;
using test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Indices = std::vector<std::int64_t>;

// All replicas of a job, in step.
class Job {
 public:
  Job(std::int64_t size, int num_replicas, const DistributedSamplerOptions& options) {
    for (int rank = 0; rank < num_replicas; ++rank) {
      samplers_.emplace_back(size, num_replicas, rank, options);
    }
  }

  void load(const SamplerState& state) {
    for (ResumableSampler& sampler : samplers_) {
      sampler.load_state(state);
    }
  }

  // Trains `n_steps` steps, or until the end of the epoch. Returns the samples in the order of the
  // steps.
  Indices train(std::int64_t batch_size, std::int64_t n_steps) {
    std::vector<Indices> shares;
    for (ResumableSampler& sampler : samplers_) {
      shares.push_back(sampler.indices());
      EXPECT_EQ(shares.back().size(), shares.front().size());
    }
    const auto n_shared = static_cast<std::int64_t>(shares.front().size());
    const std::int64_t n_trained = std::min(n_shared, batch_size * n_steps);
    Indices trained;
    for (std::int64_t i = 0; i < n_trained; ++i) {
      for (const Indices& share : shares) {
        trained.push_back(share[static_cast<std::size_t>(i)]);
      }
    }
    for (std::int64_t done = 0; done < n_trained; done += batch_size) {
      for (ResumableSampler& sampler : samplers_) {
        sampler.advance(std::min(batch_size, n_trained - done));
      }
    }
    return trained;
  }

  [[nodiscard]] const SamplerState& state() const {
    for (const ResumableSampler& sampler : samplers_) {
      EXPECT_EQ(sampler.state(), samplers_.front().state());
    }
    return samplers_.front().state();
  }

  [[nodiscard]] std::int64_t num_samples() const { return samplers_.front().num_samples(); }

 private:
  std::vector<ResumableSampler> samplers_;
};

TEST(ResumableSampler, IsADistributedSamplerWhenNothingHappens) {
  for (const std::int64_t size : {0, 1, 3, 10, 64, 1001}) {
    for (const int num_replicas : {1, 2, 3, 4, 8}) {
      for (const bool drop_last : {false, true}) {
        for (const bool shuffle : {false, true}) {
          const DistributedSamplerOptions options{
              .shuffle = shuffle, .seed = -3, .drop_last = drop_last};
          for (int rank = 0; rank < num_replicas; ++rank) {
            DistributedSampler expected(size, num_replicas, rank, options);
            ResumableSampler sampler(size, num_replicas, rank, options);
            for (const std::int64_t epoch : {0, 1, 7}) {
              expected.set_epoch(epoch);
              sampler.set_epoch(epoch);
              EXPECT_EQ(sampler.indices(), expected.indices());
              sampler.advance(sampler.num_samples());
              EXPECT_EQ(sampler.num_samples(), 0);
            }
          }
        }
      }
    }
  }
}

TEST(ResumableSampler, GoesOnWithMoreReplicas) {
  Job two(10, 2, {.shuffle = false});
  EXPECT_THAT(two.train(2, 1), ElementsAre(0, 1, 2, 3));
  Job four(10, 4, {.shuffle = false});
  four.load(two.state());
  EXPECT_EQ(four.num_samples(), 2);
  EXPECT_THAT(four.train(5, 9), ElementsAre(4, 5, 6, 7, 8, 9, 0, 1));
}

TEST(ResumableSampler, WithDropLastLeavesOutLessThanOneForEachReplica) {
  Job two(10, 2, {.shuffle = false, .drop_last = true});
  EXPECT_THAT(two.train(1, 2), ElementsAre(0, 1, 2, 3));
  Job four(10, 4, {.shuffle = false, .drop_last = true});
  four.load(two.state());
  EXPECT_THAT(four.train(5, 9), ElementsAre(4, 5, 6, 7));
}

// An epoch that jobs of random sizes train in parts, one after the other.
struct Resized : ::testing::TestWithParam<std::uint32_t> {};

TEST_P(Resized, DealsEachSampleOnceInTheEpochsOrder) {
  std::mt19937 engine(GetParam());
  const auto up_to = [&](std::uint32_t most) { return static_cast<int>(engine() % most) + 1; };
  const std::int64_t size = up_to(300);
  const std::int64_t epoch = up_to(5);
  const DistributedSamplerOptions options{
      .shuffle = engine() % 4 != 0, .seed = up_to(1000), .drop_last = engine() % 2 == 0};
  DistributedSampler whole(size, 1, 0, options);
  whole.set_epoch(epoch);
  const Indices order = whole.indices();

  Indices trained;
  SamplerState state{
      .epoch = epoch, .dataset_size = size, .seed = options.seed, .shuffle = options.shuffle};
  int num_replicas = 0;
  std::int64_t n_left = 1;
  while (n_left > 0) {
    num_replicas = up_to(9);
    // The state's seed and shuffle count.
    Job job(size, num_replicas, {.shuffle = true, .seed = -1, .drop_last = options.drop_last});
    job.load(state);
    const Indices part = job.train(up_to(7), up_to(5));
    trained.insert(trained.end(), part.begin(), part.end());
    state = job.state();
    n_left = job.num_samples();
  }

  if (options.drop_last) {
    EXPECT_LE(static_cast<std::int64_t>(trained.size()), size);
    EXPECT_LT(size - static_cast<std::int64_t>(trained.size()), num_replicas);
  } else {
    EXPECT_GE(static_cast<std::int64_t>(trained.size()), size);
    EXPECT_LT(static_cast<std::int64_t>(trained.size()) - size, num_replicas);
  }
  for (std::size_t i = 0; i < trained.size(); ++i) {
    EXPECT_EQ(trained[i], order[i % order.size()]) << "place " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Resized, ::testing::Range(0U, 100U));

TEST(ResumableSampler, TheSameJobGoesOnWithTheTailOfItsShare) {
  const DistributedSamplerOptions options{.seed = 5};
  DistributedSampler whole(1001, 4, 3, options);
  const Indices expected = whole.indices();
  for (const std::int64_t n_done : {0, 1, 17, 250, 251}) {
    ResumableSampler first(1001, 4, 3, options);
    first.advance(n_done);
    ResumableSampler second(1001, 4, 3, options);
    second.load_state(first.state());
    EXPECT_EQ(second.indices(), Indices(expected.begin() + n_done, expected.end()));
  }
}

TEST(ResumableSampler, SetEpochBeginsAnotherEpochOnly) {
  ResumableSampler sampler(10, 2, 0, {.shuffle = false});
  sampler.advance(3);
  sampler.set_epoch(0);
  EXPECT_THAT(sampler.indices(), ElementsAre(6, 8));
  sampler.set_epoch(1);
  EXPECT_EQ(sampler.num_samples(), 5);
  sampler.set_epoch(0);
  EXPECT_EQ(sampler.num_samples(), 5);
}

TEST(ResumableSampler, TakingIndicesConsumesNothing) {
  ResumableSampler sampler(10, 2, 0);
  const Indices all = sampler.indices();
  EXPECT_EQ(sampler.state(), ResumableSampler(10, 2, 1).state());
  EXPECT_EQ(sampler.indices(), all);
}

TEST(ResumableSampler, AForgottenSetEpochIsAnErrorAndNoEmptyEpoch) {
  ResumableSampler sampler(10, 4, 0, {.drop_last = true});
  sampler.advance(2);
  const CaughtError error = error_of([&] { (void)sampler.indices(); });
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("epoch 0 is consumed to its end; call set_epoch(1)"));

  ResumableSampler resumed(10, 4, 0, {.drop_last = true});
  resumed.load_state(sampler.state());
  EXPECT_THAT(resumed.indices(), IsEmpty());
  EXPECT_EQ(error_of([&] { (void)resumed.indices(); }).code, ErrorCode::kInvalidArgument);
  resumed.load_state(sampler.state());
  resumed.set_epoch(1);
  EXPECT_EQ(resumed.indices().size(), 2U);
}

TEST(ResumableSampler, ExplainsWhatIsWrong) {
  const auto message = [](const std::function<void(ResumableSampler&)>& action) {
    ResumableSampler sampler(10, 4, 1);
    const SamplerState before = sampler.state();
    const CaughtError error = error_of([&] { action(sampler); });
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(sampler.state(), before);
    return error.message;
  };
  EXPECT_THAT(message([](ResumableSampler& sampler) { sampler.advance(4); }),
              HasSubstr("rank 1 advances by 4 samples, but epoch 0 has 3 left for each of 4"));
  EXPECT_THAT(message([](ResumableSampler& sampler) { sampler.advance(-1); }),
              HasSubstr("advances by -1"));
  EXPECT_THAT(message([](ResumableSampler& sampler) { sampler.load_state({.dataset_size = 9}); }),
              HasSubstr("of a data set of 9 samples, but this one has 10"));
  for (const std::int64_t n_consumed : {-1, 11}) {
    EXPECT_THAT(message([&](ResumableSampler& sampler) {
                  sampler.load_state({.n_consumed = n_consumed, .dataset_size = 10});
                }),
                HasSubstr(" of 10 samples are consumed"));
  }
  EXPECT_THAT(message([](ResumableSampler&) { (void)ResumableSampler(10, 4, 4); }),
              HasSubstr("ResumableSampler: rank is 4, but 4 replicas have the ranks 0 to 3"));
}

TEST(ResumableSampler, TakesRankAndWorldSizeFromAGroup) {
  struct {
    [[nodiscard]] int rank() const { return 2; }

    [[nodiscard]] int world_size() const { return 4; }
  } const group;

  EXPECT_THAT(ResumableSampler(10, group, {.shuffle = false}).indices(), ElementsAre(2, 6, 0));
}

}  // namespace
}  // namespace unisono
