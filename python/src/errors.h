#pragma once

#include <exception>
#include <string>

#include "unisono/base/error.h"

#include "exit_guard.h"

namespace unisono::python {

/// Throws the exception of PyTorch that stands for the error in Python, with the same message.
///
/// kInvalidArgument becomes RuntimeError, as of PyTorch's own backends; kPeerLost, kUnauthenticated
/// and kIncompatible DistNetworkError; kInterrupted what a signal's handler raised; the rest
/// DistBackendError.
[[noreturn]] void throw_translated(const Error& error);

/// The same for an error that is kept; others, and null, as they are.
[[nodiscard]] std::exception_ptr translated(const std::exception_ptr& error);

/// Calls the function and translates what it throws.
template <class Function>
decltype(auto) with_translated_errors(Function&& function) {
  try {
    return function();
  } catch (const Error& error) {
    throw_translated(error);
  }
}

/// The same for what a store throws: kTimeout becomes DistStoreError, kInvalidArgument ValueError,
/// kSystem and kClosed DistNetworkError.
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
