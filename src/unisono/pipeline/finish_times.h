#pragma once

#include <vector>

#include "unisono/pipeline/inputs.h"
#include "unisono/pipeline/schedule.h"

namespace unisono::pipeline {

/// When what other stages wait for was done, in a run of a schedule that is thought out.
class FinishTimes {
 public:
  FinishTimes(int n_stages, int n_chunks);

  void set(const Action& action, double end);

  /// When all that the action takes in is with its rank; infinity while some of it is not done.
  [[nodiscard]] double ready_at(const Action& action,
                                const Schedule& schedule,
                                double transfer = 0,
                                const std::vector<Skip>& skips = {}) const;

 private:
  [[nodiscard]] std::size_t place_of(bool is_forward, int stage, int chunk) const;

  int n_stages_;
  int n_chunks_;
  std::vector<double> ends_;
};

}  // namespace unisono::pipeline
