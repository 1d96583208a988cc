#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>

#include "unisono/base/error.h"
#include "unisono/base/user_reduction.h"

namespace unisono::kernels {

/// Calls the user's function for `count` elements. Throws Error(kInternal), which names the
/// reduction, for what the function throws, save an Error.
inline void call_user(
    const UserReduction& user, const void* lhs, const void* rhs, void* result, std::size_t count) {
  try {
    user.combine(lhs, rhs, result, static_cast<std::int64_t>(count));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kInternal,
                "the function of reduction \"" + user.name + "\" threw: " + error.what());
  }
}

}  // namespace unisono::kernels
