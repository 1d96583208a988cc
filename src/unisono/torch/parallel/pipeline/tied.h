#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "unisono/torch/parallel/pipeline/stage_gradients.h"
#include "unisono/torch/parallel/pipeline/step_run.h"
#include "unisono/torch/parallel/pipeline/transfers.h"

namespace unisono::parallel {

/// How many places their messages take.
[[nodiscard]] std::size_t n_tied_places(const std::vector<Tie>& ties);

/// By what tied parameters are exchanged.
struct TiedMessages {
  Transfers& transfers;
  std::size_t first_place = 0;
};

/// Gives each tied parameter of this rank the values of the first stage that has it. All ranks call
/// it. Returns which one is of another type or shape; "" for none.
[[nodiscard]] std::string copy_first_values(const StepPlan& plan,
                                            const std::vector<Tie>& ties,
                                            const TiedMessages& messages);

/// Gives each the sum of the stages' gradients, in their order. All ranks call it.
void sum_tied_gradients(const StepPlan& plan,
                        const std::vector<Tie>& ties,
                        const TiedMessages& messages,
                        StageGradients& gradients);

}  // namespace unisono::parallel
