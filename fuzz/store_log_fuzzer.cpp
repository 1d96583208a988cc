// The file of a FileStore. Input: the file, starting with its first byte.
//
// Checksums keep most inputs out of the payload. Therefore the bytes after the header are also read
// as a payload.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "unisono/base/bytes.h"
#include "unisono/store/file_log.h"
#include "unisono/store/store_map.h"

#include "expect.h"
#include "input.h"

namespace {

using unisono::fuzz::expect;
namespace store = unisono::store;

void replay(std::span<const std::byte> bytes) {
  store::StoreMap map;
  store::LogRecord record = store::read_log_record(bytes);
  for (; record.state == store::RecordState::kWhole; record = store::read_log_record(bytes)) {
    expect(std::ranges::equal(store::encode_log_record(record.change), bytes.first(record.n_bytes)),
           "a record is encoded as it was read");
    for (const store::MapStep& step : record.change) {
      store::apply(map, step, store::kNobody);
    }
    bytes = bytes.subspan(record.n_bytes);
  }
  expect(record.state == store::RecordState::kDamaged || record.n_bytes > bytes.size(),
         "a torn record has more bytes than there are");
  expect(!map.is_waiting(store::kNobody), "nobody waits for a barrier of another process");
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = unisono::fuzz::Input(data, size).rest();
  const std::size_t n_header = std::min(bytes.size(), store::kLogHeaderBytes);
  const store::LogStart start = store::classify_log_start(bytes.first(n_header));
  expect(start != store::LogStart::kWhole || n_header == store::kLogHeaderBytes,
         "a header is whole with all of its bytes");
  replay(bytes.subspan(n_header));
  const std::optional<store::Change> change = store::decode_change(bytes.subspan(n_header));
  if (change) {
    unisono::ByteWriter writer;
    store::encode(writer, *change);
    expect(std::ranges::equal(writer.bytes(), bytes.subspan(n_header)),
           "a change is encoded as it was read");
    replay(store::encode_log_record(*change));
  }
  return 0;
}
