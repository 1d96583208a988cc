// Replies of a PMI launcher, and rank 0's record in the launcher's key space.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "unisono/rendezvous/key_value_space/key_value_space.h"

#include "expect.h"

namespace unisono::fuzz {
namespace {

void read(std::string_view text) {
  if (const std::optional<rendezvous::PmiMessage> answer = rendezvous::parse_pmi(text)) {
    expect(answer->contains("cmd"), "an answer has its cmd");
    for (const auto& [name, value] : *answer) {
      expect(text.find(name + "=" + value) != std::string_view::npos, "a word is in the answer");
    }
  }
  if (const std::optional<rendezvous::MasterRecord> note = rendezvous::decode_record(text)) {
    const std::string again = rendezvous::encode_record(*note);
    expect(rendezvous::decode_record(again) == note, "a note is read as it was written");
  }
}

}  // namespace
}  // namespace unisono::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  unisono::fuzz::read({reinterpret_cast<const char*>(data), size});
  return 0;
}
