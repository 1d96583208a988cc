#include "errors.h"

#include <exception>
#include <string>

#include <c10/util/Exception.h>

#include "unisono/base/error.h"

#include "interrupt.h"

namespace unisono::python {

void throw_translated(const Error& error) {
  const std::string message = error.what();
  switch (error.code()) {
    case ErrorCode::kInvalidArgument:
      C10_THROW_ERROR(Error, message);
    case ErrorCode::kTimeout:
      // Programs search for the word "timeout" in the message.
      C10_THROW_ERROR(DistBackendError, message + "; the timeout is over");
    case ErrorCode::kPeerLost:
    case ErrorCode::kUnauthenticated:
    case ErrorCode::kIncompatible:
      C10_THROW_ERROR(DistNetworkError, message);
    case ErrorCode::kInterrupted:
      throw_raised();
      C10_THROW_ERROR(DistBackendError, message);
    default:
      C10_THROW_ERROR(DistBackendError, message);
  }
}

void throw_store_error(const Error& error) {
  const std::string message = error.what();
  switch (error.code()) {
    case ErrorCode::kInvalidArgument:
      C10_THROW_ERROR(ValueError, message);
    case ErrorCode::kTimeout:
      C10_THROW_ERROR(DistStoreError, message);
    case ErrorCode::kSystem:
    case ErrorCode::kClosed:
      C10_THROW_ERROR(DistNetworkError, message);
    default:
      throw_translated(error);
  }
}

std::exception_ptr translated(const std::exception_ptr& error) {
  if (error == nullptr) {
    return nullptr;
  }
  try {
    with_translated_errors([&] { std::rethrow_exception(error); });
  } catch (...) {
    return std::current_exception();
  }
  return error;
}

void reject(const char* operation, const std::string& problem) {
  C10_THROW_ERROR(Error, std::string("unisono::") + operation + ": " + problem);
}

}  // namespace unisono::python
