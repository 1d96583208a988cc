#pragma once

#include <exception>
#include <string>

#include "unisono/base/error.h"

#include "exit_guard.h"

namespace unisono::python {

/// Throws the PyTorch exception that corresponds to the error, with the same message.
///
/// kInvalidArgument becomes RuntimeError, as in PyTorch's own backends. kPeerLost, kUnauthenticated
/// and kIncompatible become DistNetworkError. kInterrupted rethrows the exception of a signal
/// handler. Other codes become DistBackendError.
[[noreturn]] void throw_translated(const Error& error);

/// Returns a stored error translated to PyTorch's exception; other exceptions, and null, are
/// returned unchanged.
[[nodiscard]] std::exception_ptr translated(const std::exception_ptr& error);

/// Calls the function and translates its errors.
template <class Function>
decltype(auto) with_translated_errors(Function&& function) {
  try {
    return function();
  } catch (const Error& error) {
    throw_translated(error);
  }
}

/// Translates the errors of a store: kTimeout becomes DistStoreError, kInvalidArgument ValueError,
/// kSystem and kClosed DistNetworkError; other codes as in throw_translated().
[[noreturn]] void throw_store_error(const Error& error);

template <class Function>
decltype(auto) with_store_errors(Function&& function) {
  const ExitGuard exit_guard;
  try {
    return function();
  } catch (const Error& error) {
    throw_store_error(error);
  }
}

/// Throws RuntimeError "unisono::`operation`: `problem`".
[[noreturn]] void reject(const char* operation, const std::string& problem);

}  // namespace unisono::python
