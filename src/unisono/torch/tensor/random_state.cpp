#include "unisono/torch/tensor/random_state.h"

#include <cstdint>
#include <mutex>
#include <string>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>

#include "unisono/base/error.h"
#include "unisono/torch/tensor/random_turn.h"

namespace unisono {
namespace {

template <class Use>
auto with_generator(const Use& use) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  return use(generator);
}

}  // namespace

at::Tensor random_state() {
  return with_generator([](const at::Generator& generator) { return generator.get_state(); });
}

void set_random_state(const at::Tensor& state) {
  try {
    with_generator([&](at::Generator& generator) { generator.set_state(state); });
  } catch (const c10::Error& error) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string("not a random generator's state: ") + error.what_without_backtrace());
  }
}

void seed_random(std::uint64_t seed) {
  with_generator([seed](at::Generator& generator) { generator.set_current_seed(seed); });
}

KeptRandomState::KeptRandomState() {
  const RandomTurn turn;
  state_ = random_state();
}

KeptRandomState::~KeptRandomState() {
  const RandomTurn turn;
  set_random_state(state_);
}

}  // namespace unisono
