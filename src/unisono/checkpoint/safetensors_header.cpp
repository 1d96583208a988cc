#include "unisono/checkpoint/safetensors_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/placeholder.h"
#include "unisono/checkpoint/checked_file.h"
#include "unisono/checkpoint/element_type.h"
#include "unisono/checkpoint/json.h"
#include "unisono/checkpoint/safetensors.h"
#include "unisono/checkpoint/tensor_box.h"

namespace unisono::checkpoint {
namespace {

using nlohmann::json;

constexpr const char* kMetadataKey = "__metadata__";
constexpr std::uint64_t kLengthBytes = 8;
// What other readers take at most, too.
constexpr std::uint64_t kMostHeaderBytes = 100'000'000;
constexpr std::int64_t kMostElements = std::numeric_limits<std::int64_t>::max();

void check_tensors(std::span<const TensorInfo> tensors, const std::string& where) {
  std::set<std::string_view> names;
  for (const TensorInfo& tensor : tensors) {
    std::string problem;
    if (tensor.name.empty() || tensor.name == kMetadataKey) {
      problem = "no tensor may have this name";
    } else if (!names.insert(tensor.name).second) {
      problem = "two tensors have this name";
    } else if (tensor.dtype.name().empty()) {
      problem = fmt::format("safetensors files can't hold {}; save its real view instead",
                            to_string(tensor.dtype));
    } else if (!count_bytes(tensor.dtype, tensor.shape)) {
      problem = "its shape " + describe(tensor.dtype, tensor.shape) +
                " makes no sense, or its elements do not fill whole bytes";
    }
    if (!problem.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: tensor \"{}\": {}", where, tensor.name, problem));
    }
  }
}

/// Reads one header, whose file the messages name.
class HeaderParser {
 public:
  HeaderParser(std::string where, std::uint64_t data_start, std::uint64_t n_data_bytes)
      : where_(std::move(where)), data_start_(data_start), n_data_bytes_(n_data_bytes) {}

  [[nodiscard]] SafetensorsHeader parse(std::string_view text) const {
    SafetensorsHeader header;
    const json parsed = parse_json_object(text, where_ + ": the header");
    for (const auto& [name, value] : parsed.items()) {
      if (name == kMetadataKey) {
        header.metadata = parse_metadata(value);
      } else {
        header.tensors.push_back(parse_tensor(name, value));
      }
    }
    std::sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
      return std::pair(a.offset, a.n_bytes) < std::pair(b.offset, b.n_bytes);
    });
    check_places(header.tensors);
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ErrorCode::kCorruptData, where_ + ": " + problem);
  }

  [[nodiscard]] std::map<std::string, std::string> parse_metadata(const json& value) const {
    std::map<std::string, std::string> metadata;
    if (!value.is_object()) {
      fail(fmt::format("\"{}\" is a JSON {}, not an object", kMetadataKey, value.type_name()));
    }
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) {
        fail(fmt::format("\"{}\" in \"{}\" is no string", key, kMetadataKey));
      }
      metadata.emplace(key, text.get<std::string>());
    }
    return metadata;
  }

  // The member `key` of a tensor's entry.
  [[nodiscard]] const json& member(const std::string& who,
                                   const json& entry,
                                   const char* key) const {
    if (!entry.is_object() || !entry.contains(key)) {
      fail(fmt::format("{} has no \"{}\"", who, key));
    }
    return entry[key];
  }

  [[nodiscard]] std::vector<std::int64_t> parse_numbers(const std::string& who,
                                                        const json& entry,
                                                        const char* key) const {
    const json& list = member(who, entry, key);
    if (!list.is_array()) {
      fail(fmt::format("{}: \"{}\" is a JSON {}, not a list", who, key, list.type_name()));
    }
    std::vector<std::int64_t> numbers;
    for (const json& number : list) {
      numbers.push_back(whole_number(
          number, kMostElements, where_, fmt::format("{}: each number of \"{}\"", who, key)));
    }
    return numbers;
  }

  [[nodiscard]] ElementType parse_dtype(const std::string& who, const json& entry) const {
    const json& name = member(who, entry, "dtype");
    if (!name.is_string()) {
      fail(who + ": \"dtype\" is no string");
    }
    const std::optional<ElementType> dtype = ElementType::named(name.get_ref<const std::string&>());
    if (!dtype) {
      fail(fmt::format("{} has dtype {}; those that can be read are {}",
                       who,
                       name.dump(),
                       fmt::join(ElementType::names(), ", ")));
    }
    return *dtype;
  }

  [[nodiscard]] StoredTensor parse_tensor(const std::string& name, const json& entry) const {
    const std::string who = fmt::format("tensor \"{}\"", name);
    if (name.empty()) {
      fail("a tensor has no name");
    }
    StoredTensor tensor{.info = {.name = name,
                                 .dtype = parse_dtype(who, entry),
                                 .shape = parse_numbers(who, entry, "shape")}};
    if (entry.size() != 3) {
      fail(who + " has other members than \"dtype\", \"shape\" and \"data_offsets\"");
    }
    const std::vector<std::int64_t> place = parse_numbers(who, entry, "data_offsets");
    if (place.size() != 2 || place[0] > place[1]) {
      fail(who + ": \"data_offsets\" must be a begin and an end");
    }
    tensor.offset = data_start_ + static_cast<std::uint64_t>(place[0]);
    tensor.n_bytes = static_cast<std::uint64_t>(place[1] - place[0]);
    const std::optional<std::uint64_t> expected = count_bytes(tensor.info.dtype, tensor.info.shape);
    if (!expected || *expected != tensor.n_bytes) {
      fail(fmt::format("{} is {}, which is not the {} bytes of its data_offsets {} to {}",
                       who,
                       describe(tensor.info.dtype, tensor.info.shape),
                       tensor.n_bytes,
                       place[0],
                       place[1]));
    }
    return tensor;
  }

  // Tensors follow each other, from the header's end to the file's.
  void check_places(const std::vector<StoredTensor>& tensors) const {
    std::uint64_t end = data_start_;
    for (const StoredTensor& tensor : tensors) {
      if (tensor.offset != end) {
        fail(
            fmt::format("tensor \"{}\" begins at offset {}, {} the end of what stands before it, "
                        "at {}",
                        tensor.info.name,
                        tensor.offset,
                        tensor.offset < end ? "before" : "after",
                        end));
      }
      end += tensor.n_bytes;
    }
    if (end != data_start_ + n_data_bytes_) {
      fail(fmt::format("{}: its tensors end at offset {}, but the file at {}",
                       end > data_start_ + n_data_bytes_ ? "is truncated" : "has bytes too many",
                       end,
                       data_start_ + n_data_bytes_));
    }
  }

  std::string where_;
  std::uint64_t data_start_;
  std::uint64_t n_data_bytes_;
};

}  // namespace

EncodedHeader encode_header(std::span<const TensorInfo> tensors,
                            const std::map<std::string, std::string>& metadata,
                            const std::string& where) {
  check_tensors(tensors, where);
  EncodedHeader header;
  header.order.resize(tensors.size());
  std::iota(header.order.begin(), header.order.end(), std::size_t{0});
  // The largest elements first: then all are aligned.
  std::stable_sort(header.order.begin(), header.order.end(), [&](std::size_t a, std::size_t b) {
    return tensors[a].dtype.n_bits() > tensors[b].dtype.n_bits();
  });
  nlohmann::ordered_json entries = nlohmann::ordered_json::object();
  if (!metadata.empty()) {
    entries[kMetadataKey] = metadata;
  }
  std::uint64_t offset = 0;
  for (const std::size_t index : header.order) {
    const TensorInfo& tensor = tensors[index];
    const std::uint64_t end = offset + count_bytes(tensor.dtype, tensor.shape).value_or(0);
    entries[tensor.name] = {
        {"dtype", tensor.dtype.name()}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = dump_json(entries, where);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMostHeaderBytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: the names and shapes of {} tensors take {} bytes; {} are the most",
                            where,
                            tensors.size(),
                            text.size(),
                            kMostHeaderBytes));
  }
  const std::uint64_t n_bytes = text.size();
  header.bytes.resize(kLengthBytes);
  std::memcpy(header.bytes.data(), &n_bytes, kLengthBytes);
  header.bytes += text;
  return header;
}

SafetensorsHeader decode_header(CheckedFile& file) {
  std::uint64_t n_header_bytes = 0;
  if (file.n_bytes() < kLengthBytes) {
    throw Error(
        ErrorCode::kCorruptData,
        fmt::format(
            "{}: is no safetensors file: its {} bytes are too few", file.path(), file.n_bytes()));
  }
  file.read_at(0, std::as_writable_bytes(std::span(&n_header_bytes, 1)));
  const std::uint64_t rest = file.n_bytes() - kLengthBytes;
  if (n_header_bytes > kMostHeaderBytes) {
    std::vector<std::byte> beginning(std::min<std::uint64_t>(file.n_bytes(), kPlaceholderBytes));
    file.read_at(0, beginning);
    check_no_placeholder(file.path(), beginning);
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: is no safetensors file: a header of {} bytes, where {} are the "
                            "most",
                            file.path(),
                            n_header_bytes,
                            kMostHeaderBytes));
  }
  if (n_header_bytes > rest) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: is truncated, or no safetensors file: of a header of {} bytes, {} "
                            "are there",
                            file.path(),
                            n_header_bytes,
                            rest));
  }
  std::string text(static_cast<std::size_t>(n_header_bytes), '\0');
  file.read_at(kLengthBytes, std::as_writable_bytes(std::span(text)));
  return HeaderParser(file.path(), kLengthBytes + n_header_bytes, rest - n_header_bytes)
      .parse(text);
}

}  // namespace unisono::checkpoint
