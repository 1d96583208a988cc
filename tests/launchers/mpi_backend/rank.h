#pragma once

#include <memory>
#include <string>

#include "unisono/comm/process_group.h"

/// Returns the world of backend mpi in which all tests of this process run one after the other.
[[nodiscard]] const std::shared_ptr<unisono::ProcessGroup>& world();

/// Returns the message of the exception that `call` throws; "" after success.
template <class Call>
[[nodiscard]] std::string error_of(Call call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}
