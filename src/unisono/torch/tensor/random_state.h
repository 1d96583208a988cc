#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace unisono {

/// Returns, or sets, the state of a device's default generator, which torch::manual_seed() seeds
/// and which dropout and other random operations on the device use. The state is in CPU memory.
/// set_random_state() throws Error(kInvalidArgument) for a tensor that is not a state of the
/// generator.
[[nodiscard]] at::Tensor random_state(at::Device device = at::kCPU);
/// Sets the generator's state to a result of random_state().
void set_random_state(const at::Tensor& state, at::Device device = at::kCPU);

/// Seeds only that generator.
void seed_random(std::uint64_t seed, at::Device device = at::kCPU);

/// Devices with a random generator, beside the CPU. An accelerator draws by a separate generator.
using RandomDevices = std::vector<at::Device>;

/// Seeds the generators of the CPU and of the devices with the same number.
void seed_random(std::uint64_t seed, const RandomDevices& devices);

/// The states of the generators of the CPU and of some devices, at the time of construction.
class RandomStates {
 public:
  /// Takes the states of the generators of the CPU and of `devices`.
  explicit RandomStates(const RandomDevices& devices = {});

  /// Sets the generators to these states.
  void restore() const;

 private:
  std::vector<std::pair<at::Device, at::Tensor>> states_;
};

/// RAII guard that restores the states of the generators of the CPU and of the given devices at the
/// end of the scope, as if no number had been drawn. Takes a RandomTurn in the constructor and in
/// the destructor, so that no other thread is disturbed.
class KeptRandomState {
 public:
  /// `devices`: the devices beside the CPU whose generators are kept.
  explicit KeptRandomState(const RandomDevices& devices = {});
  ~KeptRandomState();

  KeptRandomState(const KeptRandomState&) = delete;
  KeptRandomState& operator=(const KeptRandomState&) = delete;
  KeptRandomState(KeptRandomState&&) = delete;
  KeptRandomState& operator=(KeptRandomState&&) = delete;

 private:
  RandomDevices devices_;
  std::optional<RandomStates> states_;
};

/// Recursive lock on the default random generators, which are global to the process while ranks may
/// be threads. The constructor waits until other threads release the generators. A RandomTurn
/// inside another RandomTurn of the same thread only adds its devices to the outer one. Threads
/// that draw without a RandomTurn are not excluded.
///
/// Not to be held during a backward pass on an accelerator: LibTorch runs such a pass on another
/// thread, where an activation checkpoint takes a turn.
class RandomTurn {
 public:
  /// `devices`: the devices beside the CPU whose generators the thread uses.
  explicit RandomTurn(const RandomDevices& devices = {});
  ~RandomTurn();

  RandomTurn(const RandomTurn&) = delete;
  RandomTurn& operator=(const RandomTurn&) = delete;
  RandomTurn(RandomTurn&&) = delete;
  RandomTurn& operator=(RandomTurn&&) = delete;

  /// Returns true if this thread holds a RandomTurn that is not paused.
  [[nodiscard]] static bool is_own();

 private:
  friend class RandomTurns;

  RandomDevices devices_;
  std::optional<RandomStates> states_;  // Set while paused, after another thread took the turn.
};

/// RAII guard around calls that wait for other ranks: releases the thread's RandomTurn, if there is
/// one, to other threads. The destructor takes the turn back and restores the generators' states.
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
