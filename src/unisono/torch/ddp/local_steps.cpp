#include "unisono/torch/ddp/local_steps.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>

#include "unisono/base/fnv.h"
#include "unisono/base/log.h"

namespace unisono::ddp {
namespace {

// A few bytes tell whether a step was made: LibTorch's optimizers leave tensors' versions as they
// are.
std::uint64_t sample_of(const at::Tensor& parameter) {
  constexpr std::size_t kSamples = 64;
  const auto* const bytes = static_cast<const unsigned char*>(parameter.const_data_ptr());
  const std::size_t stride = std::max<std::size_t>(1, parameter.nbytes() / kSamples) | 1;
  std::uint64_t hash = kFnvStart;
  for (std::size_t i = 0; i < parameter.nbytes(); i += stride) {
    hash = fnv_step(hash, bytes[i]);
  }
  return hash;
}

std::atomic<std::int64_t>& count_of_averages() {
  static std::atomic<std::int64_t> count{0};
  return count;
}

}  // namespace

void note_average_by_hand() noexcept {
  count_of_averages().fetch_add(1, std::memory_order_relaxed);
}

LocalSteps::LocalSteps(at::Tensor parameter, std::string who)
    : parameter_(std::move(parameter)), who_(std::move(who)) {}

void LocalSteps::on_pass(bool is_synchronized) {
  const std::uint64_t sample = sample_of(parameter_);
  const std::int64_t n_averages = count_of_averages().load(std::memory_order_relaxed);
  const bool is_apart = was_local_ && sample != sample_ && n_averages == n_averages_;
  if (is_apart && !std::exchange(has_warned_, true)) {
    Logger(who_).warning(
        "DistributedDataParallel: parameters were changed after a pass under no_sync(), so by "
        "gradients of this rank alone, and the ranks' models go apart; end no_sync() before the "
        "last backward() of each step");
  }
  was_local_ = !is_synchronized;
  sample_ = sample;
  n_averages_ = n_averages;
}

}  // namespace unisono::ddp
