#include "memory.h"

#include <fstream>
#include <stdexcept>
#include <string>

namespace bench {
namespace {

double mib_of(const std::string& wanted) {
  std::ifstream file("/proc/self/status");
  std::string key;
  while (file >> key) {
    if (key == wanted) {
      double kibibytes = 0;
      file >> kibibytes;
      return kibibytes / 1024;
    }
  }
  throw std::runtime_error("/proc/self/status has no " + wanted);
}

}  // namespace

void reset_peak() {
  std::ofstream file("/proc/self/clear_refs");
  if (!(file << "5") || !file.flush()) {
    throw std::runtime_error("can't write /proc/self/clear_refs");
  }
}

double resident_mib() {
  return mib_of("VmRSS:");
}

double peak_mib() {
  return mib_of("VmHWM:");
}

}  // namespace bench
