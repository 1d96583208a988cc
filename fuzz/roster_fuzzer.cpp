// Entries of ranks at the rendezvous, and their validation.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/net/hello.h"
#include "unisono/rendezvous/roster/roster.h"

#include "expect.h"
#include "input.h"

namespace unisono::fuzz {
namespace {

constexpr int kWorldSize = 4;

// Returns false if an entry is from another version and may contain unknown fields.
bool are_of_this_version(const std::vector<rendezvous::Entry>& entries) {
  for (const rendezvous::Entry& entry : entries) {
    if (entry.version != net::kProtocolVersion) {
      return false;
    }
  }
  return true;
}

void read_entries(const std::string& text) {
  const std::optional<std::vector<rendezvous::Entry>> entries = rendezvous::decode_entries(text);
  if (!entries) {
    return;
  }
  const std::optional<Error> problem = rendezvous::find_problem(*entries);
  const std::string missing = rendezvous::describe_missing(*entries, kWorldSize);
  expect(!problem || !std::string(problem->what()).empty(), "a problem has words");
  expect(missing.starts_with("rank"), "missing ranks have a description");
  if (are_of_this_version(*entries)) {
    std::string again;
    for (const rendezvous::Entry& entry : *entries) {
      again += rendezvous::encode_entry(entry);
    }
    expect(again == text, "entries are encoded as they were read");
  }
}

}  // namespace
}  // namespace unisono::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  unisono::fuzz::read_entries({reinterpret_cast<const char*>(data), size});
  return 0;
}
