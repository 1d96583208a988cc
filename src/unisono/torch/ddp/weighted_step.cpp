#include "unisono/torch/ddp/weighted_step.h"

#include <cstdint>
#include <string>

#include "unisono/base/error.h"

namespace unisono::ddp {

void WeightedStep::fail(const char* problem) const {
  throw Error(ErrorCode::kInvalidArgument,
              "[rank " + std::to_string(rank_) + "] DistributedDataParallel: with weigh_samples " +
                  problem);
}

void WeightedStep::begin(std::int64_t n_samples) {
  is_on_ = true;
  is_reduced_ = false;
  vote_ = {.n_samples = n_samples};
}

void WeightedStep::begin_pass() const {
  if (!is_on_) {
    fail("backward() is called in run_step() only");
  }
}

void WeightedStep::synchronize() {
  if (is_reduced_) {
    fail(
        "a step's gradients are averaged once, but run_step() calls backward() again; call all but "
        "the last under no_sync()");
  }
  is_reduced_ = true;
}

void WeightedStep::end() {
  if (!is_reduced_) {
    fail(
        "run_step() calls backward() for its samples, at the end not under no_sync(); a rank that "
        "has none says so: run_step(0, ...)");
  }
  is_on_ = false;
}

}  // namespace unisono::ddp
