// Random operations of random sizes on random groups with random delays. Every result is checked.
// UNISONO_STRESS_SEED repeats a run.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"

#include "support/ranks.h"

namespace unisono {
namespace {

using Values = std::vector<std::int64_t>;

// Returns the value of the job's rank `rank` at `index` in the operation with this number.
std::int64_t value_at(std::uint64_t number, int rank, std::size_t index) {
  return static_cast<std::int64_t>((number * 31 + static_cast<std::uint64_t>(rank) * 7 + index) %
                                   1009);
}

Values values_of(std::uint64_t number, int rank, std::size_t count, std::size_t begin = 0) {
  Values values(count);
  for (std::size_t index = 0; index < count; ++index) {
    values[index] = value_at(number, rank, begin + index);
  }
  return values;
}

// One rank. All ranks draw the same numbers from `plan`; only this rank draws from `own`.
class Player {
 public:
  Player(ProcessGroup& world, unsigned seed)
      : world_(world),
        plan_(seed),
        own_(seed + 1000U * (1U + static_cast<unsigned>(world.rank()))) {}

  void play(Deadline deadline) {
    // Ranks must agree on the end of the run: rank 0 decides.
    for (std::int64_t goes_on = 1; goes_on != 0;) {
      for (int step = 0; step < 50; ++step) {
        play_one();
      }
      finish_all();
      goes_on = deadline.has_passed() ? 0 : 1;
      world_.broadcast(as_buffer(std::span(&goes_on, 1)));
    }
  }

  [[nodiscard]] std::uint64_t n_played() const { return number_; }

 private:
  struct Pending {
    Work work;
    std::shared_ptr<Values> got;
    Values wanted;
  };

  void play_one() {
    ++number_;
    const std::size_t count = draw_count();
    const std::uint64_t kind = plan_() % 10;
    const std::uint64_t root_draw = plan_();
    const bool is_async = plan_() % 3 == 0;
    ProcessGroup* const group = draw_group();
    if (own_() % 20 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(own_() % 3000));
    }
    if (group == nullptr) {
      return;
    }
    const auto root = static_cast<int>(root_draw % static_cast<std::uint64_t>(group->world_size()));
    switch (kind) {
      case 0:
      case 1:
        return all_reduce(*group, count, is_async);
      case 2:
        return reduce(*group, count, root);
      case 3:
        return reduce_scatter(*group, count);
      case 4:
        return all_gather(*group, count, is_async);
      case 5:
        return gather(*group, count, root);
      case 6:
        return scatter(*group, count, root);
      case 7:
        return all_to_all(*group, count);
      case 8:
        return broadcast(*group, count, root, is_async);
      default:
        return shift(*group, count);
    }
  }

  std::size_t draw_count() {
    const std::uint64_t magnitude = plan_() % 18;
    return plan_() % ((2U << magnitude) / static_cast<std::size_t>(world_.world_size()) + 2);
  }

  // Returns the world or a temporary group; null on ranks that are not members.
  ProcessGroup* draw_group() {
    const std::uint64_t draw = plan_() % 30;
    if (draw == 0) {
      finish_all();
      const auto colours = static_cast<int>(1 + plan_() % 3);
      const auto key = static_cast<int>(plan_() % 5);
      part_ = world_.split(world_.rank() % colours, key * world_.rank() % 3);
    }
    return draw < 15 && part_ != nullptr ? part_.get() : &world_;
  }

  // Returns the job's rank of a member.
  static int job_rank(ProcessGroup& group, int rank) {
    return group.roster().members[static_cast<std::size_t>(rank)].job_rank;
  }

  Values mine(std::size_t count, std::size_t begin = 0) {
    return values_of(number_, world_.rank(), count, begin);
  }

  Values sum_over(ProcessGroup& group, std::size_t count, std::size_t begin = 0) const {
    Values sum(count, 0);
    for (int rank = 0; rank < group.world_size(); ++rank) {
      const Values part = values_of(number_, job_rank(group, rank), count, begin);
      std::transform(sum.begin(), sum.end(), part.begin(), sum.begin(), std::plus<>());
    }
    return sum;
  }

  static void append(Values& values, const Values& more) {
    values.insert(values.end(), more.begin(), more.end());
  }

  void expect(const Values& got, const Values& wanted, const char* what) const {
    ASSERT_EQ(got, wanted) << what << ", operation " << number_ << " on rank " << world_.rank();
  }

  void finish_all() {
    for (const Pending& pending : pending_) {
      pending.work.wait();
      ASSERT_EQ(*pending.got, pending.wanted) << "rank " << world_.rank();
    }
    pending_.clear();
  }

  void all_reduce(ProcessGroup& group, std::size_t count, bool is_async) {
    auto values = std::make_shared<Values>(mine(count));
    const Buffer buffer = as_buffer(std::span(*values));
    if (is_async) {
      pending_.push_back({group.all_reduce_async(buffer), values, sum_over(group, count)});
    } else {
      group.all_reduce(buffer);
      expect(*values, sum_over(group, count), "all_reduce");
    }
  }

  void reduce(ProcessGroup& group, std::size_t count, int root) {
    Values in = mine(count);
    Values out(group.rank() == root ? count : 0);
    group.reduce(as_buffer(std::span(in)), as_buffer(std::span(out)), {.root = root});
    expect(out, group.rank() == root ? sum_over(group, count) : Values(), "reduce");
  }

  void reduce_scatter(ProcessGroup& group, std::size_t count) {
    Values in = mine(count * static_cast<std::size_t>(group.world_size()));
    Values out(count);
    group.reduce_scatter(as_buffer(std::span(in)), as_buffer(std::span(out)));
    expect(out,
           sum_over(group, count, count * static_cast<std::size_t>(group.rank())),
           "reduce_scatter");
  }

  Values blocks_of_all(ProcessGroup& group, std::size_t count) const {
    Values all;
    for (int rank = 0; rank < group.world_size(); ++rank) {
      append(all, values_of(number_, job_rank(group, rank), count));
    }
    return all;
  }

  void all_gather(ProcessGroup& group, std::size_t count, bool is_async) {
    auto in = std::make_shared<Values>(mine(count));
    auto out = std::make_shared<Values>(count * static_cast<std::size_t>(group.world_size()));
    Buffer given = as_buffer(std::span(*in));
    given.owner = in;
    if (is_async) {
      pending_.push_back({group.all_gather_async(given, as_buffer(std::span(*out))),
                          out,
                          blocks_of_all(group, count)});
    } else {
      group.all_gather(given, as_buffer(std::span(*out)));
      expect(*out, blocks_of_all(group, count), "all_gather");
    }
  }

  void gather(ProcessGroup& group, std::size_t count, int root) {
    const bool is_root = group.rank() == root;
    Values in = mine(count);
    Values out(is_root ? count * static_cast<std::size_t>(group.world_size()) : 0);
    group.gather(as_buffer(std::span(in)), as_buffer(std::span(out)), {.root = root});
    expect(out, is_root ? blocks_of_all(group, count) : Values(), "gather");
  }

  void scatter(ProcessGroup& group, std::size_t count, int root) {
    const bool is_root = group.rank() == root;
    Values in = is_root ? mine(count * static_cast<std::size_t>(group.world_size())) : Values();
    Values out(count);
    group.scatter(as_buffer(std::span(in)), as_buffer(std::span(out)), {.root = root});
    expect(
        out,
        values_of(
            number_, job_rank(group, root), count, count * static_cast<std::size_t>(group.rank())),
        "scatter");
  }

  void all_to_all(ProcessGroup& group, std::size_t count) {
    Values in = mine(count * static_cast<std::size_t>(group.world_size()));
    Values out(in.size());
    group.all_to_all(as_buffer(std::span(in)), as_buffer(std::span(out)));
    Values wanted;
    for (int rank = 0; rank < group.world_size(); ++rank) {
      append(wanted,
             values_of(number_,
                       job_rank(group, rank),
                       count,
                       count * static_cast<std::size_t>(group.rank())));
    }
    expect(out, wanted, "all_to_all");
  }

  void broadcast(ProcessGroup& group, std::size_t count, int root, bool is_async) {
    auto values = std::make_shared<Values>(mine(count));
    const Buffer buffer = as_buffer(std::span(*values));
    Values wanted = values_of(number_, job_rank(group, root), count);
    if (is_async) {
      pending_.push_back(
          {group.broadcast_async(buffer, {.root = root}), values, std::move(wanted)});
    } else {
      group.broadcast(buffer, {.root = root});
      expect(*values, wanted, "broadcast");
    }
  }

  // Sends a message to the next rank and receives a message from the previous rank.
  void shift(ProcessGroup& group, std::size_t count) {
    const int size = group.world_size();
    const int from = (group.rank() + size - 1) % size;
    Values in = mine(count);
    Values out(count);
    const int tag = static_cast<int>(number_ % 1000);
    const Work sent =
        group.send_async(as_buffer(std::span(in)), (group.rank() + 1) % size, {.tag = tag});
    group.recv(as_buffer(std::span(out)), from, {.tag = tag});
    sent.wait();
    expect(out, values_of(number_, job_rank(group, from), count), "shift");
  }

  ProcessGroup& world_;
  std::mt19937 plan_;
  std::mt19937 own_;
  std::uint64_t number_ = 0;
  std::shared_ptr<ProcessGroup> part_;
  std::vector<Pending> pending_;
};

struct Stage {
  std::vector<std::string> nodes;

  friend std::ostream& operator<<(std::ostream& out, const Stage& stage) {
    return out << ::testing::PrintToString(stage.nodes);
  }
};

class Stress : public ::testing::TestWithParam<Stage> {};

TEST_P(Stress, EveryResultIsRight) {
  const char* const given = std::getenv("UNISONO_STRESS_SEED");
  const unsigned seed = given == nullptr ? std::random_device()()
                                         : static_cast<unsigned>(std::strtoul(given, nullptr, 10));
  std::cout << "UNISONO_STRESS_SEED=" << seed << std::endl;
  test::run_ranks({.nodes = GetParam().nodes}, [seed](ProcessGroup& group) {
    Player player(group, seed);
    player.play(Deadline::after(std::chrono::seconds(8)));
    if (group.rank() == 0) {
      std::cout << player.n_played() << " operations" << std::endl;
      EXPECT_GT(player.n_played(), 100U);
    }
  });
}

// One minute in total.
INSTANTIATE_TEST_SUITE_P(Worlds,
                         Stress,
                         ::testing::Values(Stage{{"a", "a"}},
                                           Stage{{"a", "b"}},
                                           Stage{{"a", "a", "a"}},
                                           Stage{{"a", "b", "a"}},
                                           Stage{{"a", "a", "a", "a", "a"}},
                                           Stage{{"a", "b", "b", "a", "c"}},
                                           Stage{std::vector<std::string>(8, "a")},
                                           Stage{{"a", "a", "b", "b", "a", "c", "c", "b"}}));

}  // namespace
}  // namespace unisono
