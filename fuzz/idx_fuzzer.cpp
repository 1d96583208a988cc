// IDX files, plain and gzip.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/data/readers/idx.h"
#include "unisono/data/testing/idx_writer.h"

#include "expect.h"
#include "input.h"
#include "memory_file.h"

namespace unisono::fuzz {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 20;

// Nothing for what is no IDX file.
std::optional<IdxArray> read(const std::string& content) {
  const MemoryFile file(content);
  try {
    return read_idx(file.path(), kMaxBytes);
  } catch (const Error& error) {
    expect(error.code() == ErrorCode::kCorruptData || error.code() == ErrorCode::kInvalidArgument,
           error.what());
    return std::nullopt;
  }
}

void check(const IdxArray& array, const std::string& content) {
  std::uint64_t n_elements = 1;
  for (const std::int64_t dim : array.dims) {
    n_elements *= static_cast<std::uint64_t>(dim);
  }
  expect(array.bytes.size() == n_elements * size_of(array.dtype), "the elements are all there");
  expect(array.bytes.size() <= kMaxBytes, "the limit holds");
  // A file that is gzip itself would be unpacked twice, which read_idx() does not.
  if (content.starts_with("\x1f\x8b")) {
    return;
  }
  const std::optional<IdxArray> packed = read(data::testing::gzip(content));
  expect(packed && packed->dims == array.dims && packed->bytes == array.bytes,
         "gzip makes no difference");
}

}  // namespace
}  // namespace unisono::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string content(reinterpret_cast<const char*>(data), size);
  if (const std::optional<unisono::IdxArray> array = unisono::fuzz::read(content)) {
    unisono::fuzz::check(*array, content);
  }
  return 0;
}
