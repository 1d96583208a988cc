#include "unisono/torch/amp/amp.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <ATen/DeviceAccelerator.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/optimizer.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono {

AutocastState::AutocastState() {
  for (const auto& device : {std::optional(at::kCPU), at::getAccelerator()}) {
    if (device && at::autocast::is_autocast_available(*device)) {
      devices_.push_back({.device = *device,
                          .is_enabled = at::autocast::is_autocast_enabled(*device),
                          .type = at::autocast::get_autocast_dtype(*device)});
    }
  }
}

AutocastState::AutocastState(c10::ScalarType type, bool is_enabled) : AutocastState() {
  for (OfDevice& of : devices_) {
    of.type = type;
    of.is_enabled = is_enabled;
  }
}

void AutocastState::set() const {
  for (const OfDevice& of : devices_) {
    at::autocast::set_autocast_enabled(of.device, of.is_enabled);
    at::autocast::set_autocast_dtype(of.device, of.type);
  }
}

bool AutocastState::is_enabled() const {
  return std::ranges::any_of(devices_, [](const OfDevice& of) { return of.is_enabled; });
}

Autocast::Autocast(c10::ScalarType type, bool is_enabled)
    : Autocast(AutocastState(type, is_enabled)) {
  if (type != at::kBFloat16 && type != at::kHalf) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string("Autocast: devices compute in BFloat16 or Half, not in ") +
                    c10::toString(type));
  }
}

Autocast::Autocast(const AutocastState& state) {
  state.set();
  at::autocast::increment_nesting();
}

// The outermost guard clears LibTorch's cache of cast parameters, because parameters change after
// the scope.
Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) {
    at::autocast::clear_cache();
  }
  previous_.set();
}

namespace {

void check(bool is_right, const std::string& problem) {
  if (!is_right) {
    throw Error(ErrorCode::kInvalidArgument, "GradScaler: " + problem);
  }
}

void check_gradient(const at::Tensor& gradient) {
  check(gradient.layout() == at::kStrided, "a gradient is sparse; it can't be unscaled");
  check(at::isFloatingType(gradient.scalar_type()) && gradient.element_size() > 2,
        std::string("a gradient is ") + c10::toString(gradient.scalar_type()) +
            "; parameters stay in 32 or 64 bits under autocast");
}

// Returns true if a gradient was infinite or NaN.
bool unscale_gradients(torch::optim::Optimizer& optimizer, double inverse_scale) {
  std::vector<at::Tensor> gradients;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : distinct_tensors(group.params())) {
      if (parameter.grad().defined()) {
        check_gradient(parameter.grad());
        gradients.push_back(parameter.grad());
      }
    }
  }
  at::Tensor found = at::zeros({1}, at::kFloat);
  std::vector<at::Tensor> found_on_devices;
  for (const auto& [kind, alike] : by_device_and_type(gradients)) {
    const at::TensorOptions options = alike.front().options().dtype(at::kFloat);
    const at::Tensor factor = at::full({1}, inverse_scale, options);
    at::Tensor of_device = alike.front().is_cpu() ? found : at::zeros({1}, options);
    at::_amp_foreach_non_finite_check_and_unscale_(alike, of_device, factor);
    if (!alike.front().is_cpu()) {
      found_on_devices.push_back(of_device);
    }
  }
  // The sums on one device leave a single wait of the host.
  for (std::size_t i = 1; i < found_on_devices.size(); ++i) {
    found_on_devices.front().add_(
        found_on_devices[i].to(found_on_devices.front().device(), /*non_blocking=*/true));
  }
  const bool is_found_on_device =
      !found_on_devices.empty() && found_on_devices.front().item<float>() != 0;
  return is_found_on_device || found.item<float>() != 0;
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options, std::shared_ptr<ProcessGroup> group)
    : options_(options), group_(std::move(group)), scale_(static_cast<float>(options.init_scale)) {
  check(scale_ > 0 && std::isfinite(scale_),
        "init_scale is " + std::to_string(options.init_scale) + "; it must be above 0");
  check(options.growth_factor > 1,
        "growth_factor is " + std::to_string(options.growth_factor) + "; it must be above 1");
  check(options.backoff_factor > 0 && options.backoff_factor < 1,
        "backoff_factor is " + std::to_string(options.backoff_factor) +
            "; it must be between 0 and 1");
  check(options.growth_interval > 0,
        "growth_interval is " + std::to_string(options.growth_interval) + "; it must be positive");
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const {
  // A 32-bit factor without dimensions, so that the product with a 16-bit loss has 32 bits as well.
  return options_.enabled ? loss.mul(at::full({}, scale_, loss.options().dtype(at::kFloat))) : loss;
}

void GradScaler::unscale(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) {
    return;
  }
  check(!progress_.contains(&optimizer),
        "unscale() was called for this optimizer, or step(), since the last update()");
  const bool has_overflowed =
      agree(unscale_gradients(optimizer, 1.0 / static_cast<double>(scale_)));
  progress_[&optimizer] = {.has_overflowed = has_overflowed, .is_stepped = false};
}

bool GradScaler::agree(bool has_overflowed) const {
  if (group_ == nullptr) {
    return has_overflowed;
  }
  std::array<std::uint8_t, 1> found{static_cast<std::uint8_t>(has_overflowed ? 1 : 0)};
  group_->all_reduce(as_buffer(std::span<std::uint8_t>(found)),
                     {.op = kMax, .label = "overflow of gradients"});
  return found[0] != 0;
}

bool GradScaler::step(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) {
    optimizer.step();
    return true;
  }
  if (!progress_.contains(&optimizer)) {
    unscale(optimizer);
  }
  Progress& progress = progress_[&optimizer];
  check(!progress.is_stepped, "step() was called for this optimizer since the last update()");
  progress.is_stepped = true;
  if (!progress.has_overflowed) {
    optimizer.step();
  }
  return !progress.has_overflowed;
}

void GradScaler::update() {
  if (!options_.enabled) {
    return;
  }
  check(!progress_.empty(), "update() was called, and neither step() nor unscale() before");
  bool has_overflowed = false;
  for (const auto& [optimizer, progress] : std::exchange(progress_, {})) {
    has_overflowed = has_overflowed || progress.has_overflowed;
  }
  if (has_overflowed) {
    scale_ = static_cast<float>(scale_ * options_.backoff_factor);
    growth_tracker_ = 0;
  } else if (++growth_tracker_ == options_.growth_interval) {
    const float grown = static_cast<float>(scale_ * options_.growth_factor);
    scale_ = std::isfinite(grown) ? grown : scale_;
    growth_tracker_ = 0;
  }
}

void GradScaler::load_state(double scale, std::int64_t growth_tracker) {
  check(scale > 0 && std::isfinite(static_cast<float>(scale)) && growth_tracker >= 0,
        "the state has scale " + std::to_string(scale) + " and growth tracker " +
            std::to_string(growth_tracker) + "; they must be above 0, and not negative");
  scale_ = static_cast<float>(scale);
  growth_tracker_ = growth_tracker;
}

}  // namespace unisono
