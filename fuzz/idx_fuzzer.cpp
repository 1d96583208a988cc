// IDX files, plain and gzip.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/datasets/idx.h"

#include "expect.h"
#include "input.h"
#include "memory_file.h"
#include "tests/test_files.h"

namespace unisono::fuzz {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 20;

// Returns std::nullopt if the content is not a valid IDX file.
std::optional<datasets::IdxArray> read(const std::string& content) {
  const MemoryFile file(content);
  try {
    return datasets::read_idx(file.path(), kMaxBytes);
  } catch (const Error& error) {
    expect(error.code() == ErrorCode::kCorruptData || error.code() == ErrorCode::kInvalidArgument,
           error.what());
    return std::nullopt;
  }
}

void check(const datasets::IdxArray& array, const std::string& content) {
  std::uint64_t n_elements = 1;
  for (const std::int64_t dim : array.dims) {
    n_elements *= static_cast<std::uint64_t>(dim);
  }
  expect(array.bytes.size() == n_elements * size_of(array.dtype), "the elements are all there");
  expect(array.bytes.size() <= kMaxBytes, "the limit holds");
  // A gzip file inside would be unpacked twice here. datasets::read_idx() unpacks only once.
  if (content.starts_with("\x1f\x8b")) {
    return;
  }
  const std::optional<datasets::IdxArray> packed = read(datasets::testing::gzip(content));
  expect(packed && packed->dims == array.dims && packed->bytes == array.bytes,
         "gzip makes no difference");
}

}  // namespace
}  // namespace unisono::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string content(reinterpret_cast<const char*>(data), size);
  if (const std::optional<unisono::datasets::IdxArray> array = unisono::fuzz::read(content)) {
    unisono::fuzz::check(*array, content);
  }
  return 0;
}
