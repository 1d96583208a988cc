// Lists of ids and paths of WAV files, plain and gzip.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "unisono/base/error.h"
#include "unisono/datasets/sound_dataset.h"

#include "expect.h"
#include "input.h"
#include "memory_file.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using unisono::fuzz::expect;
  const unisono::fuzz::MemoryFile file({reinterpret_cast<const char*>(data), size});
  try {
    const unisono::datasets::WavList list(file.path(), "folder", 0);
    expect(list.size() > 0 && std::ranges::is_sorted(list.ids()), "there are sounds and ids");
    for (std::int64_t index = 0; index < list.size(); ++index) {
      const std::int64_t label = list.label(index);
      expect(label >= 0 && label < static_cast<std::int64_t>(list.ids().size()),
             "labels are places of ids");
      expect(!list.path(index).empty(), "sounds have paths");
    }
  } catch (const unisono::Error& error) {
    expect(error.code() == unisono::ErrorCode::kCorruptData, error.what());
  }
  return 0;
}
