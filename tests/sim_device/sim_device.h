#pragma once

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

/// A simulated accelerator for tests: LibTorch's device type PrivateUse1 under the name "sim".
///
/// A test calls install() once and then uses the devices "sim:0" to "sim:3" as it would use GPUs.
/// Streams run late on purpose, device memory is not accessible to the host, and a happens-before
/// checker reports accesses that no event orders. This header needs no LibTorch.
namespace sim {

inline constexpr int kDeviceCount = 4;

/// An error of the simulated device itself, such as a host wait that took too long.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Behaviour of the simulated devices.
struct Options {
  /// Seeds the delays of all streams.
  std::uint64_t seed = 1;
  /// A delayed task starts up to this much later.
  std::chrono::microseconds max_delay{200};
  /// Share of the tasks that are delayed.
  double delay_probability = 0.125;
  /// Fills fresh and released memory with 0xff: NaN in each floating point type, -1 in integers.
  bool poison = true;
  /// Runs the happens-before checker.
  bool check_races = true;
  /// Limit of each wait of the host for a device, and of a stream for an event.
  std::chrono::seconds wait_limit{120};

  /// Reads SIM_SEED, SIM_DELAY_US, SIM_DELAY_P, SIM_POISON, SIM_RACE and SIM_WAIT_S.
  static Options from_environment();
};

/// Numbers of events since the start of the process, over all devices.
struct Counters {
  std::uint64_t tasks = 0;             ///< Tasks that entered a stream.
  std::uint64_t operators = 0;         ///< Calls of operators through the boxed fallback.
  std::uint64_t trial_runs = 0;        ///< Runs on zeros that determine shapes of results.
  std::uint64_t host_to_device = 0;    ///< Copies.
  std::uint64_t device_to_host = 0;    ///< Copies.
  std::uint64_t device_to_device = 0;  ///< Copies within a device and between devices.
  std::uint64_t host_waits = 0;        ///< Waits of a host thread for a stream, event or device.
  std::uint64_t blocks = 0;            ///< Blocks of memory that no earlier tensor had used.
};

/// Registers the device with LibTorch and installs the report of host accesses to device memory.
/// The first call counts. The options come from the environment.
void install();

/// Returns the races that the checker found since the last call, one text each.
[[nodiscard]] std::vector<std::string> take_races();

/// Returns the errors of tasks that no call has thrown yet. They are dropped thereby.
[[nodiscard]] std::vector<std::string> take_errors();

/// Blocks until all streams of all devices are idle. Does not throw errors of tasks.
void synchronize_all();

/// Switches the delays of streams off or on. They are on at first.
void set_delays(bool enabled);

[[nodiscard]] Counters counters();

/// Returns true if `pointer` lies in the address range of a device.
[[nodiscard]] bool is_device_pointer(const void* pointer);

}  // namespace sim
