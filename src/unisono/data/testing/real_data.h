#pragma once

#include <filesystem>
#include <string>

#include "unisono/base/config.h"

namespace unisono::data::testing {

/// Where a file of real data lies, if it is there; else tests of it skip, with why_skipped().
inline std::string real_data_path(const std::string& name) {
  return process_environment()("UNISONO_TEST_DATA_DIR").value_or(UNISONO_DEFAULT_DATA_DIR) + "/" +
         name;
}

inline bool has_real_data(const std::string& name) {
  return std::filesystem::exists(real_data_path(name));
}

inline std::string why_skipped(const std::string& name) {
  return real_data_path(name) + " is not there; UNISONO_TEST_DATA_DIR can name its folder";
}

}  // namespace unisono::data::testing
