#include "unisono/checkpoint/safetensors_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>

#include "unisono/base/error.h"
#include "unisono/base/file.h"
#include "unisono/checkpoint/json.h"

namespace unisono::checkpoint {
namespace {

using nlohmann::json;

constexpr const char* kMetadataKey = "__metadata__";
constexpr std::uint64_t kLengthBytes = 8;
// The limit of other readers.
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
                " is invalid, or its elements do not fill whole bytes";
    }
    if (!problem.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: tensor \"{}\": {}", where, tensor.name, problem));
    }
  }
}

/// Parses a header. `where` names the file in messages.
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
        fail(fmt::format("\"{}\" in \"{}\" is not a string", key, kMetadataKey));
      }
      metadata.emplace(key, text.get<std::string>());
    }
    return metadata;
  }

  // Returns the member `key` of a tensor's entry.
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
      fail(who + ": \"dtype\" is not a string");
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

  // Checks that the tensors fill the file without gaps, from the end of the header to the end of
  // the file.
  void check_places(const std::vector<StoredTensor>& tensors) const {
    std::uint64_t end = data_start_;
    for (const StoredTensor& tensor : tensors) {
      if (tensor.offset != end) {
        fail(
            fmt::format("tensor \"{}\" begins at offset {}, {} the end of the data before it, "
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
                       end > data_start_ + n_data_bytes_ ? "is truncated" : "has extra bytes",
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
  // Tensors with the largest elements come first, so that all tensors are aligned.
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
                fmt::format("{}: the names and shapes of {} tensors take {} bytes; the limit is {}",
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
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: is not a safetensors file: its {} bytes are too few",
                            file.path(),
                            file.n_bytes()));
  }
  file.read_at(0, std::as_writable_bytes(std::span(&n_header_bytes, 1)));
  const std::uint64_t rest = file.n_bytes() - kLengthBytes;
  if (n_header_bytes > kMostHeaderBytes) {
    std::vector<std::byte> beginning(std::min<std::uint64_t>(file.n_bytes(), kPlaceholderBytes));
    file.read_at(0, beginning);
    check_no_placeholder(file.path(), beginning);
    throw Error(
        ErrorCode::kCorruptData,
        fmt::format("{}: is not a safetensors file: a header of {} bytes exceeds the limit of {}",
                    file.path(),
                    n_header_bytes,
                    kMostHeaderBytes));
  }
  if (n_header_bytes > rest) {
    throw Error(
        ErrorCode::kCorruptData,
        fmt::format(
            "{}: is truncated, or not a safetensors file: of a header of {} bytes, {} are present",
            file.path(),
            n_header_bytes,
            rest));
  }
  std::string text(static_cast<std::size_t>(n_header_bytes), '\0');
  file.read_at(kLengthBytes, std::as_writable_bytes(std::span(text)));
  return HeaderParser(file.path(), kLengthBytes + n_header_bytes, rest - n_header_bytes)
      .parse(text);
}

namespace {

using nlohmann::json;

constexpr const char* kInfoKey = "DCP_SHARDING_INFO";
constexpr std::int64_t kMostShardElements = std::numeric_limits<std::int64_t>::max();

[[noreturn]] void fail(const std::string& where, const std::string& name, const std::string& what) {
  throw Error(ErrorCode::kCorruptData,
              fmt::format("{}: {} of tensor \"{}\" {}", where, kInfoKey, name, what));
}

// Returns the list `key` of a tensor's entry, which must have one number for each axis.
std::vector<std::int64_t> numbers_of(const json& entry,
                                     const char* key,
                                     const StoredTensor& tensor,
                                     const std::string& where) {
  if (!entry.contains(key) || !entry[key].is_array() ||
      entry[key].size() != tensor.info.shape.size()) {
    fail(where,
         tensor.info.name,
         fmt::format("must have \"{}\" with {} numbers", key, tensor.info.shape.size()));
  }
  std::vector<std::int64_t> numbers;
  for (const json& number : entry[key]) {
    numbers.push_back(whole_number(
        number, kMostShardElements, where, fmt::format("\"{}\" of \"{}\"", key, tensor.info.name)));
  }
  return numbers;
}

StoredPart part_of(const StoredTensor& tensor, const json& entry, const std::string& where) {
  StoredPart part{.tensor = tensor.info, .box = whole_box(tensor.info.shape)};
  part.box.offsets = numbers_of(entry, "saved_offsets", tensor, where);
  if (entry.contains("shape")) {
    part.tensor.shape = numbers_of(entry, "shape", tensor, where);
  } else {
    for (std::size_t axis = 0; axis < tensor.info.shape.size(); ++axis) {
      if (part.box.offsets[axis] > kMostShardElements - tensor.info.shape[axis]) {
        fail(where, tensor.info.name, "has an offset that is too large");
      }
      part.tensor.shape[axis] += part.box.offsets[axis];
    }
  }
  if (!count_bytes(part.tensor.dtype, part.tensor.shape) ||
      !is_within(part.box, part.tensor.shape)) {
    fail(where,
         tensor.info.name,
         fmt::format("has {} in {}, which is invalid",
                     describe(part.box),
                     describe(part.tensor.dtype, part.tensor.shape)));
  }
  return part;
}

}  // namespace

std::map<std::string, std::string> sharding_metadata(const std::vector<StoredPart>& parts,
                                                     const std::string& where) {
  json info = json::object();
  for (const StoredPart& part : parts) {
    info[part.tensor.name] = {{"saved_offsets", part.box.offsets}, {"shape", part.tensor.shape}};
  }
  return {{kInfoKey, dump_json(info, where)}, {"DCP_VERSION", "1.0"}, {"format", "pt"}};
}

ShardingInfo sharding_of(const SafetensorsHeader& header, const std::string& where) {
  ShardingInfo info;
  const auto text = header.metadata.find(kInfoKey);
  json entries;
  if (text != header.metadata.end()) {
    entries = parse_json_object(text->second, where + ": " + kInfoKey);
  }
  for (const StoredTensor& tensor : header.tensors) {
    if (entries.is_null()) {
      info.parts.push_back({.tensor = tensor.info, .box = whole_box(tensor.info.shape)});
      info.is_shape_known.push_back(true);
      continue;
    }
    if (!entries.contains(tensor.info.name) || !entries[tensor.info.name].is_object()) {
      fail(where, tensor.info.name, "is missing");
    }
    const json& entry = entries[tensor.info.name];
    info.parts.push_back(part_of(tensor, entry, where));
    info.is_shape_known.push_back(entry.contains("shape"));
    info.is_of_this_library = info.is_of_this_library || entry.contains("shape");
  }
  return info;
}

}  // namespace unisono::checkpoint
