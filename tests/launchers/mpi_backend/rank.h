#pragma once

#include <memory>
#include <string>

#include "unisono/comm/process_group.h"

/// The world of backend mpi in which all tests of this process take place, one after the other.
[[nodiscard]] const std::shared_ptr<unisono::ProcessGroup>& world();

/// What `call` throws; "" for nothing.
template <class Call>
[[nodiscard]] std::string error_of(Call call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}
