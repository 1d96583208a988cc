#pragma once

#include <ATen/core/Tensor.h>

namespace unisono {

/// While a thread has one, no other that asks for one draws from the generator that random_state()
/// is of: LibTorch has one for the process, and ranks may be threads of it. Waits for those of
/// other threads. One inside another of the same thread changes nothing.
class RandomTurn {
 public:
  RandomTurn();
  ~RandomTurn();

  RandomTurn(const RandomTurn&) = delete;
  RandomTurn& operator=(const RandomTurn&) = delete;
  RandomTurn(RandomTurn&&) = delete;
  RandomTurn& operator=(RandomTurn&&) = delete;

  /// Whether this thread has one.
  [[nodiscard]] static bool is_own();

 private:
  friend class RandomTurns;

  at::Tensor state_;  // While it is paused, and another turn has drawn since.
};

/// Around what waits for other ranks: meanwhile the thread's turn, if it has one, is theirs.
/// Afterwards its numbers go on as if none had been drawn.
class RandomPause {
 public:
  RandomPause();
  ~RandomPause();

  RandomPause(const RandomPause&) = delete;
  RandomPause& operator=(const RandomPause&) = delete;
  RandomPause(RandomPause&&) = delete;
  RandomPause& operator=(RandomPause&&) = delete;

 private:
  RandomTurn* turn_;  // Null where there is nothing to give away.
};

}  // namespace unisono
