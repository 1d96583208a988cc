#pragma once

#include <atomic>
#include <cstdint>

#include "sim_device/block_pool.h"
#include "sim_device/device_memory.h"
#include "sim_device/sim_device.h"
#include "sim_device/streams.h"

namespace sim {

/// The simulated devices: memory, streams and checker. Owns its parts; the parts hold references to
/// each other. A test may have a machine of its own. Thread-safe.
class Machine {
 public:
  explicit Machine(const Options& options);

  /// Stops the machine.
  ~Machine();

  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  Machine(Machine&&) = delete;
  Machine& operator=(Machine&&) = delete;

  /// Blocks until all streams of the device are idle, then throws an error of a task, if any.
  void synchronize(int device);

  /// Finishes the tasks and ends the threads. Memory that is released later is lost.
  void stop();

  // The parts, in the order of their construction.
  StreamContext context;
  DeviceMemory memory;
  Streams streams;
  BlockPool blocks;

  // Counters of the layer on LibTorch.
  std::atomic<std::uint64_t> n_operators{0};
  std::atomic<std::uint64_t> n_trial_runs{0};
  std::atomic<std::uint64_t> n_host_to_device{0};
  std::atomic<std::uint64_t> n_device_to_host{0};
  std::atomic<std::uint64_t> n_device_to_device{0};
};

/// Returns the machine behind the devices "sim:0" to "sim:3", made at the first call with the
/// options of the environment. It stops when the process exits, and is never destroyed: LibTorch's
/// static objects may hold tensors.
Machine& machine();

}  // namespace sim
