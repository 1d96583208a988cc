// A rank's report of its waits to its launcher, and the bytes that follow the checksum.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "unisono/base/wait_record.h"

#include "expect.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using unisono::fuzz::expect;
  const std::span<const std::byte> bytes = unisono::fuzz::Input(data, size).rest();
  (void)unisono::find_checked(bytes);
  if (const std::optional<unisono::WaitRecord> record = unisono::decode_wait_record(bytes)) {
    const std::vector<std::byte> again = unisono::encode(*record);
    expect(std::ranges::equal(again, bytes), "a record is encoded as it was read");
    const std::vector<std::byte> file = unisono::checked(again);
    expect(file.size() <= unisono::kWaitFileBytes, "a record fits into its file");
    const std::optional<std::span<const std::byte>> found = unisono::find_checked(file);
    expect(found && std::ranges::equal(*found, bytes), "what was checked is found again");
  }
  return 0;
}
