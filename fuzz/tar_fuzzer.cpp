// Tar archives, plain and gzip, and the samples in them.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "unisono/base/error.h"
#include "unisono/datasets/tar.h"

#include "expect.h"
#include "input.h"
#include "memory_file.h"

namespace unisono::fuzz {
namespace {

// Returns the number of files, with or without reading their content; std::nullopt for a damaged
// archive.
std::optional<int> count_files(const std::string& path, bool reads_content) {
  try {
    datasets::TarReader reader(path);
    int n_files = 0;
    while (const std::optional<datasets::TarEntry> entry = reader.next()) {
      expect(!reads_content || reader.content().size() == entry->n_bytes, "files are whole");
      ++n_files;
    }
    return n_files;
  } catch (const Error& error) {
    expect(error.code() == ErrorCode::kCorruptData, error.what());
    return std::nullopt;
  }
}

void read_samples(const std::string& path) {
  try {
    datasets::ShardReader reader({path});
    while (const std::optional<datasets::ShardSample> sample = reader.next()) {
      expect(!sample->key.empty() && !sample->parts.empty(), "a sample has a key and parts");
    }
  } catch (const Error& error) {
    expect(error.code() == ErrorCode::kCorruptData, error.what());
  }
}

}  // namespace
}  // namespace unisono::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const unisono::fuzz::MemoryFile file({reinterpret_cast<const char*>(data), size});
  const std::string path = file.path();
  unisono::fuzz::expect(
      unisono::fuzz::count_files(path, true) == unisono::fuzz::count_files(path, false),
      "content that is not read makes no difference");
  unisono::fuzz::read_samples(path);
  return 0;
}
