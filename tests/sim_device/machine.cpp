#include "sim_device/machine.h"

#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

namespace sim {
namespace {

template <class Number>
void read(const char* name, Number& value) {
  const char* text = std::getenv(name);
  if (text == nullptr) {
    return;
  }
  char* end = nullptr;
  const double number = std::strtod(text, &end);
  if (end == text || *end != '\0' || number < 0) {
    throw Error(std::string("sim: ") + name + "=" + text + " is not a number of at least 0");
  }
  value = static_cast<Number>(number);
}

}  // namespace

Options Options::from_environment() {
  Options options;
  auto delay_us = options.max_delay.count();
  auto wait_s = options.wait_limit.count();
  int poison = 1;
  int check_races = 1;
  read("SIM_SEED", options.seed);
  read("SIM_DELAY_US", delay_us);
  read("SIM_DELAY_P", options.delay_probability);
  read("SIM_POISON", poison);
  read("SIM_RACE", check_races);
  read("SIM_WAIT_S", wait_s);
  options.max_delay = std::chrono::microseconds(delay_us);
  options.wait_limit = std::chrono::seconds(wait_s);
  options.poison = poison != 0;
  options.check_races = check_races != 0;
  return options;
}

Machine::Machine(const Options& options)
    : context(options), streams(context), blocks(memory, streams, context) {}

Machine::~Machine() {
  stop();
}

void Machine::synchronize(int device) {
  context.host_waits.fetch_add(1, std::memory_order_relaxed);
  streams.synchronize(device);
  context.errors.rethrow();
}

void Machine::stop() {
  blocks.stop();
  if (is_forked_child()) {
    return;
  }
  try {
    streams.stop();
  } catch (const std::exception&) {
    // A stream hangs. Its thread ends with the process.
  }
}

Machine& machine() {
  static Machine* const the_machine = [] {
    auto* made = new Machine(Options::from_environment());
    std::atexit([] { machine().stop(); });
    return made;
  }();
  return *the_machine;
}

std::vector<std::string> take_races() {
  return machine().context.checker.take_races();
}

std::vector<std::string> take_errors() {
  return machine().context.errors.take();
}

void synchronize_all() {
  for (int device = 0; device < kDeviceCount; ++device) {
    machine().streams.synchronize(device);
  }
}

void set_delays(bool enabled) {
  machine().context.delays_enabled.store(enabled, std::memory_order_relaxed);
}

Counters counters() {
  Machine& m = machine();
  return {.tasks = m.context.tasks,
          .operators = m.n_operators,
          .trial_runs = m.n_trial_runs,
          .host_to_device = m.n_host_to_device,
          .device_to_host = m.n_device_to_host,
          .device_to_device = m.n_device_to_device,
          .host_waits = m.context.host_waits,
          .blocks = m.blocks.n_made()};
}

bool is_device_pointer(const void* pointer) {
  return machine().memory.contains(pointer);
}

}  // namespace sim
