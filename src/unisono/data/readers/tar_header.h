#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace unisono::data {

inline constexpr std::size_t kTarBlockBytes = 512;

using TarBlock = std::span<const std::byte, kTarBlockBytes>;

/// What a header says of the entry behind it.
struct TarHeader {
  char type = '0';
  std::string name;
  std::uint64_t n_bytes = 0;
};

/// Whether all bytes are zero: the mark of an archive's end.
[[nodiscard]] bool is_end_mark(TarBlock block);

/// Nothing when the check sum is wrong, or a number is none.
[[nodiscard]] std::optional<TarHeader> decode_tar_header(TarBlock block);

/// What a pax header block says of the next entry; nothing where it says nothing.
struct PaxRecords {
  std::optional<std::string> path;
  std::optional<std::uint64_t> size;
  bool is_sparse = false;
};

/// Nothing when they are no pax records.
[[nodiscard]] std::optional<PaxRecords> decode_pax(std::string_view text);

}  // namespace unisono::data
