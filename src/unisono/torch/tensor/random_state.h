#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace unisono {

/// The state of the generator that torch::manual_seed() seeds, and going on from it: dropout and
/// other chance on CPUs. Throws Error(kInvalidArgument) for what is no such state.
[[nodiscard]] at::Tensor random_state();
void set_random_state(const at::Tensor& state);

/// Seeds that generator alone.
void seed_random(std::uint64_t seed);

/// Gives the program its random numbers back at the scope's end, as if none had been drawn. Takes a
/// RandomTurn to begin and to end, so that it is in no other thread's way.
class KeptRandomState {
 public:
  KeptRandomState();
  ~KeptRandomState();

  KeptRandomState(const KeptRandomState&) = delete;
  KeptRandomState& operator=(const KeptRandomState&) = delete;
  KeptRandomState(KeptRandomState&&) = delete;
  KeptRandomState& operator=(KeptRandomState&&) = delete;

 private:
  at::Tensor state_;
};

}  // namespace unisono
