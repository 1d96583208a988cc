#include "unisono/torch/tensor/random_state.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include <ATen/Context.h>
#include <ATen/core/Generator.h>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"

namespace unisono {
namespace {

template <class Use>
auto with_generator(at::Device device, const Use& use) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::scoped_lock lock(generator.mutex());
  return use(generator);
}

}  // namespace

at::Tensor random_state(at::Device device) {
  return with_generator(device,
                        [](const at::Generator& generator) { return generator.get_state(); });
}

void set_random_state(const at::Tensor& state, at::Device device) {
  try {
    with_generator(device, [&](at::Generator& generator) { generator.set_state(state); });
  } catch (const c10::Error& error) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string("not a random generator's state: ") + error.what_without_backtrace());
  }
}

void seed_random(std::uint64_t seed, at::Device device) {
  with_generator(device, [seed](at::Generator& generator) { generator.set_current_seed(seed); });
}

void seed_random(std::uint64_t seed, const RandomDevices& devices) {
  seed_random(seed);
  for (const at::Device& device : devices) {
    seed_random(seed, device);
  }
}

RandomStates::RandomStates(const RandomDevices& devices) {
  states_.emplace_back(at::kCPU, random_state());
  for (const at::Device& device : devices) {
    states_.emplace_back(device, random_state(device));
  }
}

void RandomStates::restore() const {
  for (const auto& [device, state] : states_) {
    set_random_state(state, device);
  }
}

KeptRandomState::KeptRandomState(const RandomDevices& devices) : devices_(devices) {
  const RandomTurn turn(devices_);
  states_.emplace(devices_);
}

KeptRandomState::~KeptRandomState() {
  const RandomTurn turn(devices_);
  states_->restore();
}

// Ownership of the generators. The states are saved only if another thread takes the generators in
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
        paused->states_.emplace(paused->devices_);
      }
      if (turn.states_) {
        turn.states_->restore();
        turn.states_.reset();
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
  // The paused turn that the generators' states still belong to, while no thread owns the
  // generators.
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

RandomTurn::RandomTurn(const RandomDevices& devices) : devices_(devices) {
  if (own_turn == nullptr) {
    turns().take(*this);
    own_turn = this;
    return;
  }
  for (const at::Device& device : devices) {
    if (std::ranges::find(own_turn->devices_, device) == own_turn->devices_.end()) {
      own_turn->devices_.push_back(device);
    }
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
