#include "memory.h"

#include <fstream>
#include <map>
#include <stdexcept>
#include <string>

namespace bench {

Memory memory_of_process() {
  std::ifstream file("/proc/self/smaps_rollup");
  std::map<std::string, double> mib_of;
  std::string line;
  std::getline(file, line);  // Skips the line of addresses.
  std::string key;
  std::string unit;
  double kibibytes = 0;
  while (file >> key >> kibibytes >> unit) {
    mib_of[key] = kibibytes / 1024;
  }
  for (const char* const needed : {"Pss:", "Pss_Anon:", "Pss_Shmem:"}) {
    if (!mib_of.contains(needed)) {
      throw std::runtime_error("/proc/self/smaps_rollup has no " + std::string(needed));
    }
  }
  return {.pss_mib = mib_of["Pss:"],
          .without_files_mib = mib_of["Pss_Anon:"] + mib_of["Pss_Shmem:"]};
}

}  // namespace bench
