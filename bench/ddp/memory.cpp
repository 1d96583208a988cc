#include "memory.h"

#include <fstream>
#include <stdexcept>
#include <string>

namespace bench {

double pss_mib() {
  std::ifstream file("/proc/self/smaps_rollup");
  std::string key;
  while (file >> key) {
    if (key == "Pss:") {
      double kibibytes = 0;
      file >> kibibytes;
      return kibibytes / 1024;
    }
  }
  throw std::runtime_error("/proc/self/smaps_rollup has no Pss");
}

}  // namespace bench
