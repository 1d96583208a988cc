#include "unisono/checkpoint/manifest.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/checkpoint/json.h"
#include "unisono/kernels/crc32.h"

namespace unisono::checkpoint {

std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t seed) {
  return kernels::crc32(bytes, seed);
}

void FileSummer::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t n_now =
        std::min<std::size_t>(bytes.size(), static_cast<std::size_t>(kBlockBytes - n_block_));
    block_ = crc32_of(bytes.first(n_now), block_);
    n_block_ += n_now;
    bytes = bytes.subspan(n_now);
    if (n_block_ == kBlockBytes) {
      sums_ = sums();
      block_ = 0;
      n_block_ = 0;
    }
  }
}

FileSums FileSummer::sums() const {
  FileSums all = sums_;
  if (n_block_ > 0) {
    all.n_bytes += n_block_;
    all.crc32 = static_cast<std::uint32_t>(
        crc32_combine(all.crc32, block_, static_cast<z_off_t>(n_block_)));
    all.block_crc32s.push_back(block_);
  }
  return all;
}

namespace {

using nlohmann::json;

constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMost = std::int64_t{1} << 62;
constexpr std::int64_t kMostCrc32 = std::numeric_limits<std::uint32_t>::max();

std::string sum_of(const json& manifest, const std::string& where) {
  const std::string text = dump_json(manifest, where);
  return fmt::format("{:08x}", crc32_of(std::as_bytes(std::span(text))));
}

/// Parses a manifest. `where` names the file in messages.
class ManifestParser {
 public:
  explicit ManifestParser(std::string where) : where_(std::move(where)) {}

  [[nodiscard]] Manifest parse(const json& text) const {
    const json& content = member(text, "manifest");
    check_sum(text, content);
    const std::int64_t version = number(content, "version");
    if (version != kVersion) {
      throw Error(ErrorCode::kIncompatible,
                  fmt::format("{}: is of version {} of the format; this unisono reads version {}",
                              where_,
                              version,
                              kVersion));
    }
    if (number(content, "block_bytes") != static_cast<std::int64_t>(kBlockBytes)) {
      fail(fmt::format("\"block_bytes\" must be {}", kBlockBytes));
    }
    Manifest manifest{.release = word(content, "unisono"),
                      .step = number(content, "step"),
                      .world_size = static_cast<int>(
                          number(content, "world_size", std::numeric_limits<int>::max())),
                      .shards = {}};
    const json& shards = member(content, "shards");
    if (!shards.is_array() || shards.empty()) {
      fail("\"shards\" must be a list of files");
    }
    for (const json& shard : shards) {
      manifest.shards.push_back(parse_shard(shard));
    }
    check_names(manifest.shards);
    return manifest;
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ErrorCode::kCorruptData, where_ + ": " + problem);
  }

  [[nodiscard]] const json& member(const json& object, const char* key) const {
    if (!object.is_object() || !object.contains(key)) {
      fail(fmt::format("has no \"{}\"", key));
    }
    return object[key];
  }

  [[nodiscard]] std::int64_t number(const json& object,
                                    const char* key,
                                    std::int64_t most = kMost) const {
    return whole_number(member(object, key), most, where_, fmt::format("\"{}\"", key));
  }

  [[nodiscard]] std::string word(const json& object, const char* key) const {
    const json& value = member(object, key);
    if (!value.is_string()) {
      fail(fmt::format("\"{}\" is not a string", key));
    }
    return value.get<std::string>();
  }

  void check_sum(const json& text, const json& content) const {
    const std::string expected = word(text, "crc32");
    const std::string sum = sum_of(content, where_);
    if (sum != expected) {
      fail(fmt::format("is damaged: its check sum is {}, but the file records {}", sum, expected));
    }
  }

  [[nodiscard]] Shard parse_shard(const json& entry) const {
    Shard shard{.file = word(entry, "file"), .sums = {}};
    shard.sums.n_bytes = static_cast<std::uint64_t>(number(entry, "n_bytes"));
    shard.sums.crc32 = static_cast<std::uint32_t>(number(entry, "crc32", kMostCrc32));
    const json& blocks = member(entry, "block_crc32s");
    if (!blocks.is_array() ||
        blocks.size() != (shard.sums.n_bytes + kBlockBytes - 1) / kBlockBytes) {
      fail(fmt::format("shard {}: \"block_crc32s\" must have a number for each {} of its {} bytes",
                       shard.file,
                       kBlockBytes,
                       shard.sums.n_bytes));
    }
    for (const json& block : blocks) {
      shard.sums.block_crc32s.push_back(static_cast<std::uint32_t>(
          whole_number(block, kMostCrc32, where_, "each number of \"block_crc32s\"")));
    }
    return shard;
  }

  void check_names(const std::vector<Shard>& shards) const {
    std::set<std::string_view> names;
    for (const Shard& shard : shards) {
      // A name with '/' could lead to files outside the folder.
      if (!shard.file.ends_with(".safetensors") || shard.file.find('/') != std::string::npos ||
          !names.insert(shard.file).second) {
        fail(fmt::format("\"{}\" can't be the name of a shard, or is that of two", shard.file));
      }
    }
  }

  std::string where_;
};

}  // namespace

std::string shard_name(int rank) {
  return fmt::format("shard-{:05}-model-00001-of-00001.safetensors", rank + 1);
}

std::string encode_manifest(const Manifest& manifest) {
  json shards = json::array();
  for (const Shard& shard : manifest.shards) {
    shards.push_back({{"file", shard.file},
                      {"n_bytes", shard.sums.n_bytes},
                      {"crc32", shard.sums.crc32},
                      {"block_crc32s", shard.sums.block_crc32s}});
  }
  const json content = {{"version", kVersion},
                        {"unisono", manifest.release},
                        {"step", manifest.step},
                        {"world_size", manifest.world_size},
                        {"block_bytes", kBlockBytes},
                        {"shards", std::move(shards)}};
  const std::string where = "manifest";
  return dump_json(json{{"manifest", content}, {"crc32", sum_of(content, where)}}, where) + "\n";
}

Manifest decode_manifest(std::string_view text, const std::string& where) {
  return ManifestParser(where).parse(parse_json_object(text, where));
}

}  // namespace unisono::checkpoint
