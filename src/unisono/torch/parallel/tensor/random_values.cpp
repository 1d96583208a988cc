#include "unisono/torch/parallel/tensor/random_values.h"

#include <array>
#include <cmath>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/data/random.h"
#include "unisono/torch/tensor/random_state.h"

namespace unisono::parallel {
namespace {

std::optional<at::Generator> if_defined(const at::Generator& generator) {
  return generator.defined() ? std::optional(generator) : std::nullopt;
}

// Repeats the steps of kaiming_uniform_() and xavier_uniform_(), each of which rounds.
double bound_of_deviation(double deviation) {
  return std::sqrt(3.0) * deviation;
}

}  // namespace

at::Tensor draw_uniform(at::IntArrayRef whole, double bound, const at::Generator& generator) {
  return at::empty(whole).uniform_(-bound, bound, if_defined(generator));
}

at::Tensor draw_normal(at::IntArrayRef whole, const at::Generator& generator) {
  return at::empty(whole).normal_(0, 1, if_defined(generator));
}

double linear_weight_bound(std::int64_t in_features) {
  const double gain = std::sqrt(2.0 / (1 + std::pow(std::sqrt(5.0), 2)));
  return bound_of_deviation(gain / std::sqrt(static_cast<double>(in_features)));
}

double linear_bias_bound(std::int64_t in_features) {
  return 1 / std::sqrt(static_cast<double>(in_features));
}

double xavier_bound(std::int64_t fan_in, std::int64_t fan_out) {
  return bound_of_deviation(std::sqrt(2.0 / static_cast<double>(fan_in + fan_out)));
}

namespace {

// Returns a random number that identifies this process.
std::int64_t mark_of_process() {
  static const std::int64_t mark = [] {
    std::random_device device;
    constexpr int kBits = 32;
    return static_cast<std::int64_t>(std::uint64_t{device()} << kBits | device());
  }();
  return mark;
}

std::int64_t draw_seed() {
  return at::empty({1}, at::TensorOptions(at::kLong)).random_().item<std::int64_t>();
}

}  // namespace

std::uint64_t shared_seed(ProcessGroup& group) {
  std::array<std::int64_t, 2> drawn{};  // The seed, and the mark of the process that drew the seed.
  if (group.rank() == 0) {
    drawn = {draw_seed(), mark_of_process()};
  }
  if (group.world_size() > 1) {
    const RandomPause pause;
    group.broadcast(as_buffer(std::span<std::int64_t>(drawn)), {.label = "seed of dropout"});
  }
  const auto [seed, mark] = drawn;
  // Ranks that are threads without a RandomTurn share rank 0's generator, which has advanced
  // already.
  if (group.rank() != 0 && (mark != mark_of_process() || RandomTurn::is_own())) {
    (void)draw_seed();
  }
  return static_cast<std::uint64_t>(seed);
}

namespace {

at::Generator new_generator(at::Device device) {
  return device.is_cpu() ? at::make_generator<at::CPUGeneratorImpl>()
                         : at::globalContext()
                               .getAcceleratorHooksInterface(device.type())
                               .getNewGenerator(device.index());
}

}  // namespace

// TODO(perf): on a device each slice is a kernel; a kernel of LibTorch that draws all slices from
// their own seeds does not exist.
at::Tensor drop_in_slices(const at::Tensor& tensor,
                          double p,
                          std::int64_t dim,
                          std::int64_t first_slice,
                          std::uint64_t seed) {
  if (p <= 0) {
    return tensor;
  }
  if (p >= 1) {
    return tensor * at::zeros_like(tensor);
  }
  const std::int64_t n_slices = tensor.size(dim);
  std::vector<std::int64_t> sizes{n_slices};
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    if (i != dim) {
      sizes.push_back(tensor.size(i));
    }
  }
  const at::Tensor factors = at::empty(sizes, tensor.options().requires_grad(false));
  at::Generator generator = new_generator(tensor.device());
  for (std::int64_t i = 0; i < n_slices; ++i) {
    generator.set_current_seed(
        data::Random::of_sample(static_cast<std::int64_t>(seed), 0, first_slice + i).next());
    factors.select(0, i).bernoulli_(1 - p, generator);
  }
  factors.div_(1 - p);
  return tensor * factors.movedim(0, dim);
}

void check_probability(const char* layer, double p) {
  if (!(p >= 0 && p <= 1)) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(layer) + ": a dropout of " + std::to_string(p) +
                    "; it must be a probability, from 0 to 1");
  }
}

}  // namespace unisono::parallel
