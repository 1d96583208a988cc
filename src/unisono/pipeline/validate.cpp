#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/timeline.h"

namespace unisono::pipeline {
namespace {

class Validation {
 public:
  Validation(const Schedule& schedule, const std::string& what, const NameOfPlace& name_of_place)
      : schedule_(schedule), what_(what), name_of_place_(name_of_place) {}

  void check_shape() const {
    if (schedule_.n_chunks < 1 || schedule_.n_stages() < 1 || schedule_.n_ranks() < 1) {
      fail(fmt::format("{} ranks, {} stages and {} chunks: there must be at least one of each",
                       schedule_.n_ranks(),
                       schedule_.n_stages(),
                       schedule_.n_chunks));
    }
    for (int stage = 0; stage < schedule_.n_stages(); ++stage) {
      const int rank = schedule_.rank_of_stage[as_index(stage)];
      if (rank < 0 || rank >= schedule_.n_ranks()) {
        fail(fmt::format(
            "stage {} is on rank {}, but there are {} ranks", stage, rank, schedule_.n_ranks()));
      }
    }
    for (int rank = 0; rank < schedule_.n_ranks(); ++rank) {
      if (stages_of(schedule_, rank) == 0) {
        fail(fmt::format("rank {} has no stage", rank));
      }
    }
  }

  // Checks each rank alone: the kinds, counts and order of its actions.
  void check_orders() const {
    std::vector<Passes> passes(as_index(schedule_.n_stages()) * as_index(schedule_.n_chunks));
    for (int rank = 0; rank < schedule_.n_ranks(); ++rank) {
      const std::vector<Action>& order = schedule_.orders[as_index(rank)];
      for (int place = 0; place < static_cast<int>(order.size()); ++place) {
        const Action& action = order[as_index(place)];
        check_range(action, rank, place);
        const std::string problem = enter(action, passes[place_of(action.stage, action.chunk)]);
        if (!problem.empty()) {
          fail(fmt::format("{}: {} {}", name_of(rank, place), describe(action), problem));
        }
      }
    }
    for (int stage = 0; stage < schedule_.n_stages(); ++stage) {
      for (int chunk = 0; chunk < schedule_.n_chunks; ++chunk) {
        const std::string_view missing = missing_of(passes[place_of(stage, chunk)]);
        if (!missing.empty()) {
          fail(fmt::format("rank {}: there is no {} of chunk {} in stage {}",
                           schedule_.rank_of_stage[as_index(stage)],
                           missing,
                           chunk,
                           stage));
        }
      }
    }
  }

  // Runs all ranks until no rank can continue.
  void check_progress() const {
    FinishTimes done(schedule_.n_stages(), schedule_.n_chunks);
    std::vector<int> places(schedule_.orders.size(), 0);
    for (bool is_going_on = true; is_going_on;) {
      is_going_on = false;
      for (int rank = 0; rank < schedule_.n_ranks(); ++rank) {
        int& place = places[as_index(rank)];
        while (!is_over(rank, place) && can_start(next_of(rank, place), done)) {
          done.set(next_of(rank, place++), 0);
          is_going_on = true;
        }
      }
    }
    std::vector<std::string> waits;
    for (int rank = 0; rank < schedule_.n_ranks(); ++rank) {
      const int place = places[as_index(rank)];
      if (!is_over(rank, place) && waits.size() < kMaxWaits) {
        waits.push_back(describe_wait(rank, place));
      }
    }
    if (!waits.empty()) {
      fail(fmt::format("ranks wait for each other: {}", fmt::join(waits, "; ")));
    }
  }

 private:
  // The passes of a chunk through a stage so far.
  struct Passes {
    bool has_forward = false;
    bool has_input_gradients = false;
    bool has_weight_gradients = false;
  };

  static constexpr std::size_t kMaxWaits = 4;

  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", what_, problem));
  }

  [[nodiscard]] std::string name_of(int rank, int place) const {
    return name_of_place_ ? name_of_place_(rank, place)
                          : fmt::format("rank {}, action {}", rank, place);
  }

  [[nodiscard]] std::size_t place_of(int stage, int chunk) const {
    return as_index(stage) * as_index(schedule_.n_chunks) + as_index(chunk);
  }

  [[nodiscard]] bool is_over(int rank, int place) const {
    return as_index(place) == schedule_.orders[as_index(rank)].size();
  }

  [[nodiscard]] const Action& next_of(int rank, int place) const {
    return schedule_.orders[as_index(rank)][as_index(place)];
  }

  [[nodiscard]] bool can_start(const Action& action, const FinishTimes& done) const {
    return done.ready_at(action, schedule_) < std::numeric_limits<double>::infinity();
  }

  void check_range(const Action& action, int rank, int place) const {
    if (action.stage < 0 || action.stage >= schedule_.n_stages()) {
      fail(fmt::format("{}: {}, but there are {} stages",
                       name_of(rank, place),
                       describe(action),
                       schedule_.n_stages()));
    }
    if (action.chunk < 0 || action.chunk >= schedule_.n_chunks) {
      fail(fmt::format("{}: {}, but there are {} chunks",
                       name_of(rank, place),
                       describe(action),
                       schedule_.n_chunks));
    }
    if (schedule_.rank_of_stage[as_index(action.stage)] != rank) {
      fail(fmt::format("{}: {}, which is on rank {}",
                       name_of(rank, place),
                       describe(action),
                       schedule_.rank_of_stage[as_index(action.stage)]));
    }
  }

  // Records the action. Returns an error text, or an empty text for a valid action.
  static std::string enter(const Action& action, Passes& passes) {
    const bool does_input =
        action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardInput;
    const bool does_weight =
        action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight;
    if (action.kind == ActionKind::kForward) {
      const bool is_second = passes.has_forward;
      passes.has_forward = true;
      return is_second ? "comes a second time" : "";
    }
    if (!passes.has_forward) {
      return "comes before its forward";
    }
    if ((does_input && passes.has_input_gradients) ||
        (does_weight && passes.has_weight_gradients)) {
      return "comes a second time";
    }
    if (action.kind == ActionKind::kBackwardWeight && !passes.has_input_gradients) {
      return "come before its input gradients";
    }
    passes.has_input_gradients |= does_input;
    passes.has_weight_gradients |= does_weight;
    return "";
  }

  static std::string_view missing_of(const Passes& passes) {
    if (!passes.has_forward) {
      return "forward";
    }
    if (!passes.has_input_gradients) {
      return "backward";
    }
    return passes.has_weight_gradients ? "" : to_string(ActionKind::kBackwardWeight);
  }

  // Without skip connections an action has one input stage.
  [[nodiscard]] std::string describe_wait(int rank, int place) const {
    const Action& action = next_of(rank, place);
    const int stage = input_stages(action, schedule_.n_stages()).front();
    return fmt::format("{}: {} waits for that in stage {}, on rank {}",
                       name_of(rank, place),
                       describe(action),
                       stage,
                       schedule_.rank_of_stage[as_index(stage)]);
  }

  const Schedule& schedule_;
  const std::string& what_;
  const NameOfPlace& name_of_place_;
};

}  // namespace

void validate(const Schedule& schedule, const std::string& what, const NameOfPlace& name_of_place) {
  const Validation validation(schedule, what, name_of_place);
  validation.check_shape();
  validation.check_orders();
  validation.check_progress();
}

}  // namespace unisono::pipeline
