#include "unisono/store/protocol.h"

namespace unisono::store {

ByteWriter begin(Opcode opcode) {
  ByteWriter message;
  message.put(static_cast<std::uint8_t>(opcode));
  return message;
}

void put_key(ByteWriter& message, const std::string& key) {
  message.put_string(std::string(kKeyPrefix) + key);
}

ByteWriter begin(Opcode opcode, const std::string& key) {
  ByteWriter message = begin(opcode);
  put_key(message, key);
  return message;
}

ByteWriter begin(Opcode opcode, std::span<const std::string> keys) {
  ByteWriter message = begin(opcode);
  message.put<std::uint64_t>(keys.size());
  for (const std::string& key : keys) {
    put_key(message, key);
  }
  return message;
}

ByteWriter begin(Opcode opcode, const std::string& key, const std::string& value) {
  ByteWriter message = begin(opcode, key);
  message.put_string(value);
  return message;
}

ByteWriter begin(Opcode opcode, const std::string& key, std::int64_t number) {
  ByteWriter message = begin(opcode, key);
  message.put(number);
  return message;
}

}  // namespace unisono::store
