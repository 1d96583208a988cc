#pragma once

#include <exception>
#include <string>

#include "unisono/base/error.h"

namespace unisono::parallel {

/// The error with what the operation was, where it does not say so: of one that is called when the
/// group has failed, or had not begun by then, the error is the group's alone.
/// "recv of outputs of chunk 3 from stage 0 to stage 1: ..."
[[nodiscard]] inline std::exception_ptr labelled_error(const std::string& call,
                                                       const std::string& label,
                                                       const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    const std::string what = known.what();
    if (what.find(label) == std::string::npos) {
      return std::make_exception_ptr(Error(known.code(), call + " of " + label + ": " + what));
    }
  } catch (const std::exception&) {
    return error;  // No group's.
  }
  return error;
}

/// Calls `body`, whose errors get the label.
template <class Body>
auto with_label(const std::string& call, const std::string& label, const Body& body) {
  try {
    return body();
  } catch (const std::exception&) {
    std::rethrow_exception(labelled_error(call, label, std::current_exception()));
  }
}

}  // namespace unisono::parallel
