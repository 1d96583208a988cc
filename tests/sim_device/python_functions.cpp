#include <string>
#include <vector>

#include "sim_device/sim_device.h"

// Functions that sim_device.py calls through ctypes. A text is valid until the next call from any
// thread; Python's lock orders the calls.

namespace {

const char* joined(const std::vector<std::string>& lines) {
  static std::string text;
  text.clear();
  for (const std::string& line : lines) {
    text += line;
    text += '\n';
  }
  return text.c_str();
}

}  // namespace

#define SIM_EXPORT extern "C" __attribute__((visibility("default")))

SIM_EXPORT void sim_install() {
  sim::install();
}

SIM_EXPORT int sim_device_count() {
  return sim::kDeviceCount;
}

SIM_EXPORT void sim_synchronize_all() {
  sim::synchronize_all();
}

SIM_EXPORT void sim_set_delays(bool enabled) {
  sim::set_delays(enabled);
}

SIM_EXPORT const char* sim_take_races() {
  return joined(sim::take_races());
}

SIM_EXPORT const char* sim_take_errors() {
  return joined(sim::take_errors());
}
