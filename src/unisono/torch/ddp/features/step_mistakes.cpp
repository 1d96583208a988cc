#include "unisono/torch/ddp/features/step_mistakes.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <utility>

#include "unisono/base/bytes.h"
#include "unisono/base/log.h"

namespace unisono::ddp {
namespace {

constexpr int kManyInARow = 3;

constexpr std::size_t kSamples = 64;

// Distance of the bytes of a sample.
std::size_t stride_of(const at::Tensor& tensor) {
  return std::max<std::size_t>(1, tensor.nbytes() / kSamples) | 1;
}

// Passes a sample of the dense tensor's bytes, in CPU memory, to the given function. The tensor's
// version counter cannot be used: LibTorch's optimizers do not change versions.
template <class Look>
void look_at_some(const at::Tensor& tensor, const Look& look) {
  const auto* const bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
  const std::size_t stride = stride_of(tensor);
  for (std::size_t i = 0; i < tensor.nbytes(); i += stride) {
    look(bytes[i]);
  }
}

// Returns a view of a sample of a tensor on a device. The copy of the sample is a sample of itself.
at::Tensor some_of(const at::Tensor& tensor) {
  const at::Tensor bytes = memory_of(tensor);
  return bytes.slice(0, 0, bytes.numel(), static_cast<std::int64_t>(stride_of(tensor)));
}

std::uint64_t sample_of(const at::Tensor& parameter) {
  std::uint64_t hash = kFnvStart;
  look_at_some(parameter, [&](unsigned char byte) { hash = fnv_step(hash, byte); });
  return hash;
}

bool is_dense(const at::Tensor& gradient) {
  return gradient.defined() && gradient.layout() == at::kStrided;
}

bool is_empty_or_zero(const at::Tensor& gradient) {
  bool is_zero = true;
  if (is_dense(gradient)) {
    look_at_some(gradient, [&](unsigned char byte) { is_zero = is_zero && byte == 0; });
  }
  return is_zero;
}

std::atomic<std::int64_t>& count_of_averages() {
  static std::atomic<std::int64_t> count{0};
  return count;
}

}  // namespace

void note_average_by_hand() noexcept {
  count_of_averages().fetch_add(1, std::memory_order_relaxed);
}

StepMistakes::StepMistakes(const PassContext& context)
    : parameter_(context.parameters.front().tensor),
      who_("rank " + std::to_string(context.group->rank())) {}

void StepMistakes::on_backward(bool is_synchronized, bool is_untouched) {
  if (open_) {
    copies_.wait();  // Complete since the last pass, as a rule.
    Open open = *std::exchange(open_, std::nullopt);
    open.pass.sample = sample_of(open.parameter);
    open.pass.is_zero = is_empty_or_zero(open.gradient);
    examine(open.pass);
  }
  Pass pass{.is_synchronized = is_synchronized,
            .is_untouched = is_untouched,
            .n_averages = count_of_averages().load(std::memory_order_relaxed)};
  const at::Tensor& gradient = parameter_.grad();
  if (parameter_.is_cpu()) {
    pass.sample = sample_of(parameter_);
    pass.is_zero = is_untouched && is_empty_or_zero(gradient);
    examine(pass);
  } else {
    open_ = {.pass = pass,
             .parameter = copies_.add(some_of(parameter_)),
             .gradient = is_untouched && is_dense(gradient) ? copies_.add(some_of(gradient))
                                                            : at::Tensor()};
  }
}

void StepMistakes::examine(const Pass& pass) {
  const bool has_stepped = has_passed_ && pass.sample != sample_;
  const bool is_apart = was_local_ && has_stepped && pass.n_averages == n_averages_;
  if (is_apart && !std::exchange(has_warned_of_local_, true)) {
    base::Logger(who_).warning(
        "DistributedDataParallel: parameters were changed after a pass under no_sync(), so by "
        "gradients of this rank alone, and the ranks' models go apart; end no_sync() before the "
        "last backward() of each step");
  }
  if (pass.is_untouched) {
    examine_gradient(pass.is_zero, has_stepped);
  }
  has_passed_ = true;
  was_local_ = !pass.is_synchronized;
  sample_ = pass.sample;
  n_averages_ = pass.n_averages;
}

void StepMistakes::examine_gradient(bool is_zero, bool has_stepped) {
  if (is_zero) {
    n_kept_ = 0;
  } else if (has_stepped && ++n_kept_ == kManyInARow && !std::exchange(has_warned_of_kept_, true)) {
    base::Logger(who_).warning(
        "DistributedDataParallel: backward() has added the gradients of the last 3 steps to those "
        "of the steps before, because the gradients were not set to zero; call "
        "optimizer.zero_grad() or "
        "model.zero_grad() in each step, before its first backward()");
  }
}

}  // namespace unisono::ddp
