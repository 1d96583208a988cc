#pragma once

#include <vector>

#include "unisono/pipeline/schedule.h"

namespace unisono::pipeline {

/// An output of stage `from` that stage `to`, farther on, has as an input too: a skip connection.
struct Skip {
  int from;
  int to;
};

/// What is to be there before `action` can be done: the stages whose output of that chunk, or whose
/// gradients in backward, it takes in. Weight gradients take in nothing.
///
/// A skip connection adds no order of its own: its chunk has gone through all stages between
/// anyway. So any schedule can have any of them.
[[nodiscard]] std::vector<int> input_stages(const Action& action,
                                            int n_stages,
                                            const std::vector<Skip>& skips = {});

}  // namespace unisono::pipeline
