#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace unisono {

/// Returns, or sets, the state of the generator that torch::manual_seed() seeds, which is used by
/// dropout and other random operations on CPUs. set_random_state() throws Error(kInvalidArgument)
/// for a tensor that is not a state of the generator.
[[nodiscard]] at::Tensor random_state();
/// Sets the generator's state to a result of random_state().
void set_random_state(const at::Tensor& state);

/// Seeds only that generator.
void seed_random(std::uint64_t seed);

/// RAII guard that restores the random generator's state at the end of the scope, as if no number
/// had been drawn. Takes a RandomTurn in the constructor and in the destructor, so that no other
/// thread is disturbed.
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

/// Recursive lock on the random generator of random_state(), which is global to the process while
/// ranks may be threads. The constructor waits until other threads release the generator. A
/// RandomTurn inside another RandomTurn of the same thread has no effect. Threads that draw without
/// a RandomTurn are not excluded.
class RandomTurn {
 public:
  RandomTurn();
  ~RandomTurn();

  RandomTurn(const RandomTurn&) = delete;
  RandomTurn& operator=(const RandomTurn&) = delete;
  RandomTurn(RandomTurn&&) = delete;
  RandomTurn& operator=(RandomTurn&&) = delete;

  /// Returns true if this thread holds a RandomTurn that is not paused.
  [[nodiscard]] static bool is_own();

 private:
  friend class RandomTurns;

  at::Tensor state_;  // Set while paused, after another thread took the generator.
};

/// RAII guard around calls that wait for other ranks: releases the thread's RandomTurn, if there is
/// one, to other threads. The destructor takes the turn back and restores the generator's state.
class RandomPause {
 public:
  RandomPause();
  ~RandomPause();

  RandomPause(const RandomPause&) = delete;
  RandomPause& operator=(const RandomPause&) = delete;
  RandomPause(RandomPause&&) = delete;
  RandomPause& operator=(RandomPause&&) = delete;

 private:
  RandomTurn* turn_;  // Null if the thread holds no turn.
};

}  // namespace unisono
