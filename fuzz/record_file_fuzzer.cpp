// Record files.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "unisono/base/error.h"
#include "unisono/datasets/record_file.h"

#include "expect.h"
#include "input.h"
#include "memory_file.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using unisono::fuzz::expect;
  const unisono::fuzz::MemoryFile file({reinterpret_cast<const char*>(data), size});
  try {
    const unisono::datasets::RecordFile records(file.path());
    expect(static_cast<std::size_t>(records.size()) <= size / 16, "each record has an entry");
    for (std::int64_t index = 0; index < records.size(); ++index) {
      expect(records.sample(index).size() <= size, "records lie within the file");
    }
  } catch (const unisono::Error& error) {
    expect(error.code() == unisono::ErrorCode::kCorruptData, error.what());
  }
  return 0;
}
