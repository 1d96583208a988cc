#pragma once

#include <string>

#include "unisono/base/error.h"

namespace unisono::store {

/// The Error(kTimeout) of a server that accepts connections and says nothing.
class ServerUnresponsiveError final : public Error {
 public:
  explicit ServerUnresponsiveError(const std::string& message)
      : Error(ErrorCode::kTimeout, message) {}
};

/// The Error(kPeerLost) of a server that has said why it ends the connection.
class ServerClosedError final : public Error {
 public:
  explicit ServerClosedError(const std::string& message) : Error(ErrorCode::kPeerLost, message) {}
};

}  // namespace unisono::store
