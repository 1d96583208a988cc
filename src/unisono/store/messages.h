#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "unisono/base/bytes.h"
#include "unisono/store/protocol.h"

namespace unisono::store {

// A client's requests, or their beginnings; keys get their prefix.

[[nodiscard]] ByteWriter begin(Opcode opcode);
[[nodiscard]] ByteWriter begin(Opcode opcode, const std::string& key);
[[nodiscard]] ByteWriter begin(Opcode opcode, std::span<const std::string> keys);
[[nodiscard]] ByteWriter begin(Opcode opcode, const std::string& key, const std::string& value);
[[nodiscard]] ByteWriter begin(Opcode opcode, const std::string& key, std::int64_t number);

void put_key(ByteWriter& message, const std::string& key);

}  // namespace unisono::store
