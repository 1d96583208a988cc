#include "unisono/torch/tensor/random_state.h"

#include <mutex>
#include <string>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"

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

// Ownership of the generator. The state is saved only if another thread takes the generator in
// between, so a rank that is a process copies no state.
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
  // The paused turn that the generator's state still belongs to, while no thread owns the
  // generator.
  RandomTurn* paused_ UNISONO_GUARDED_BY(mutex_) = nullptr;
};

namespace {

RandomTurns& turns() {
  static RandomTurns turns;
  return turns;
}

// The thread's outermost turn, null while the turn is paused.
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
