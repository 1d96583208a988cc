#pragma once

#include "unisono/pipeline/schedule.h"

namespace unisono::pipeline {

/// Puts the weight gradients into a schedule that has none of them: lets all ranks run, every
/// action for the same time, and a rank that would wait, or may hold no more than
/// `max_activations`, does the oldest weight gradients that it owes. The result was run, so it can
/// be.
///
/// Throws Error(kInternal) where the ranks can't go on with so few activations.
[[nodiscard]] Schedule fill_with_weights(const Schedule& schedule, int max_activations);

}  // namespace unisono::pipeline
