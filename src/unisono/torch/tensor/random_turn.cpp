#include "unisono/torch/tensor/random_turn.h"

#include <utility>

#include "unisono/base/mutex.h"
#include "unisono/torch/tensor/random_state.h"

namespace unisono {

// Who has the generator. Its state is put aside only where another thread comes in between, so a
// rank that is a process copies none.
class RandomTurns {
 public:
  void take(RandomTurn& turn) UNISONO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (is_taken_) {
      freed_.wait(mutex_);
    }
    is_taken_ = true;
    if (RandomTurn* const paused = std::exchange(paused_, nullptr); paused != &turn) {
      if (paused != nullptr) {
        paused->state_ = random_state();
      }
      if (turn.state_.defined()) {
        set_random_state(std::exchange(turn.state_, at::Tensor()));
      }
    }
  }

  void pause(RandomTurn& turn) UNISONO_EXCLUDES(mutex_) { free(&turn); }

  void end() UNISONO_EXCLUDES(mutex_) { free(nullptr); }

 private:
  void free(RandomTurn* paused) UNISONO_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      is_taken_ = false;
      paused_ = paused;
    }
    freed_.notify_one();
  }

  Mutex mutex_;
  Condition freed_;
  bool is_taken_ UNISONO_GUARDED_BY(mutex_) = false;
  // Whose numbers the generator still has, while nobody has it.
  RandomTurn* paused_ UNISONO_GUARDED_BY(mutex_) = nullptr;
};

namespace {

RandomTurns& turns() {
  static RandomTurns turns;
  return turns;
}

// The one that counts, unless it is paused.
thread_local RandomTurn* own_turn = nullptr;

}  // namespace

RandomTurn::RandomTurn() {
  if (own_turn == nullptr) {
    turns().take(*this);
    own_turn = this;
  }
}

RandomTurn::~RandomTurn() {
  if (own_turn == this) {
    own_turn = nullptr;
    turns().end();
  }
}

bool RandomTurn::is_own() {
  return own_turn != nullptr;
}

RandomPause::RandomPause() : turn_(std::exchange(own_turn, nullptr)) {
  if (turn_ != nullptr) {
    turns().pause(*turn_);
  }
}

RandomPause::~RandomPause() {
  if (turn_ != nullptr) {
    turns().take(*turn_);
    own_turn = turn_;
  }
}

}  // namespace unisono
