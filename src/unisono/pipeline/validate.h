#pragma once

#include <functional>
#include <string>

#include "unisono/pipeline/schedule.h"

namespace unisono::pipeline {

/// Says where the action at `place` of a rank's order comes from, for messages: "rank 2, action 7".
using NameOfPlace = std::function<std::string(int rank, int place)>;

/// Nothing to complain of means: however fast ranks and links are, all ranks come to the end. Each
/// chunk goes through each stage once, on the stage's rank, forward and then backward, at once or
/// in two; and no two ranks ever wait for each other.
///
/// Throws Error(kInvalidArgument), which begins with `what` and names rank, stage and chunk, and
/// the place by `name_of_place`, if there is one.
void validate(const Schedule& schedule,
              const std::string& what = "schedule",
              const NameOfPlace& name_of_place = {});

}  // namespace unisono::pipeline
