// Seeds for the targets of checkpoint/, written with the encoders of that folder.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/checkpoint/manifest.h"
#include "unisono/checkpoint/safetensors_header.h"
#include "unisono/checkpoint/tensor_box.h"

#include "corpus.h"

namespace unisono::fuzz {
namespace {

void write_safetensors_files(const std::filesystem::path& root) {
  using checkpoint::encode_header;
  using checkpoint::TensorInfo;
  const Corpus corpus(root, "safetensors");
  const std::vector<TensorInfo> tensors{
      {.name = "weight", .dtype = DType::kFloat32, .shape = {2, 3}},
      {.name = "step", .dtype = DType::kInt64, .shape = {}},
      {.name = "none", .dtype = DType::kBFloat16, .shape = {0, 4}},
      {.name = "scales", .dtype = *checkpoint::ElementType::named("F8_E8M0"), .shape = {3}},
      {.name = "fours", .dtype = *checkpoint::ElementType::named("F4"), .shape = {2, 3}}};
  const std::string sharding =
      R"({"weight": {"saved_offsets": [2, 0]}, "step": {"saved_offsets": []},
          "scales": {"saved_offsets": [0]}, "fours": {"saved_offsets": [0, 0]}})";
  const std::string whole =
      encode_header(tensors, {{"DCP_SHARDING_INFO", sharding}, {"format", "pt"}}, "seed").bytes +
      std::string(38, '\1');
  corpus.add("tensors", bytes_of(whole));
  corpus.add("truncated", bytes_of(whole.substr(0, whole.size() - 1)));
  corpus.add("empty", bytes_of(encode_header({}, {}, "seed").bytes));
  std::string doubled = whole;
  doubled.replace(doubled.find("\"none\""), 6, "\"step\"");
  corpus.add("doubled", bytes_of(doubled));
}

// The first byte selects the kind of the rest.
void write_manifests(const std::filesystem::path& root) {
  using checkpoint::encode_manifest;
  const Corpus corpus(root, "manifest");
  const std::string text =
      encode_manifest({.release = "0.1.0",
                       .step = 100,
                       .world_size = 2,
                       .shards = {{.file = checkpoint::shard_name(0),
                                   .sums = {.n_bytes = 9, .crc32 = 1, .block_crc32s = {1}}}}});
  const std::size_t begin = text.find("{\"block_bytes\"");
  const std::string manifest = std::string(1, '\0') + text.substr(begin, text.rfind('}') - begin);
  corpus.add("manifest", bytes_of(manifest));
  corpus.add("truncated", bytes_of(manifest.substr(0, manifest.size() / 2)));
  corpus.add("nested",
             bytes_of(std::string(1, '\0') + "{\"unisono\":" + std::string(2000, '[') +
                      std::string(2000, ']') + "}"));
  corpus.add("sharding", bytes_of("\1{\"weight\":{\"saved_offsets\":[4,0],\"shape\":[6,3]}}"));
  corpus.add("pytorchs", bytes_of("\1{\"weight\": {\"saved_offsets\": [4, 0]}}"));
}

// Returns a checkpoint file with rows of a weight of three rows and two columns. PyTorch writes
// files without the whole shape.
std::string rows_of_weight(std::int64_t first, std::int64_t n_rows, bool has_shape) {
  const std::vector<checkpoint::StoredPart> parts{
      {.tensor = {.name = "weight", .dtype = DType::kUInt8, .shape = {3, 2}},
       .box = {.offsets = {first, 0}, .sizes = {n_rows, 2}}}};
  const std::vector<checkpoint::TensorInfo> tensors{
      {.name = "weight", .dtype = DType::kUInt8, .shape = {n_rows, 2}}};
  std::map<std::string, std::string> metadata = checkpoint::sharding_metadata(parts, "seed");
  if (!has_shape) {
    metadata = {{"DCP_SHARDING_INFO",
                 "{\"weight\": {\"saved_offsets\": [" + std::to_string(first) + ", 0]}}"}};
  }
  return encode_header(tensors, metadata, "seed").bytes +
         std::string(static_cast<std::size_t>(2 * n_rows), static_cast<char>('a' + first));
}

// The first byte selects the kind of the rest, and the next two bytes are the size of the first
// file.
void write_folders(const std::filesystem::path& root) {
  const Corpus corpus(root, "checkpoint");
  const auto add =
      [&](const char* name, char kind, const std::string& first, const std::string& second) {
        const std::string size{static_cast<char>(first.size() % 256),
                               static_cast<char>(first.size() / 256)};
        corpus.add(name, bytes_of(std::string(1, kind) + size + first + second));
      };
  add("rows", '\2', rows_of_weight(0, 1, true), rows_of_weight(1, 2, true));
  add("hole", '\2', rows_of_weight(0, 1, true), rows_of_weight(2, 1, true));
  add("overlap", '\2', rows_of_weight(0, 2, true), rows_of_weight(1, 2, true));
  add("pytorchs", '\0', rows_of_weight(0, 1, false), rows_of_weight(1, 2, false));
  add("without_manifest", '\0', rows_of_weight(0, 1, true), rows_of_weight(1, 2, true));
  corpus.add("latest", bytes_of("\1step-00000007\n"));
  corpus.add("latest_of_elsewhere", bytes_of("\1../step-00000007"));
  corpus.add("latest_of_windows", bytes_of("\1\xef\xbb\xbfstep-00000007\r\n"));
  corpus.add("index", bytes_of("\3{\"weight_map\": {\"a\": \"a.safetensors\"}}"));
  corpus.add("index_of_more", bytes_of("\3{\"weight_map\": {\"b\": \"a.safetensors\"}}"));
}

}  // namespace

void write_checkpoints(const std::filesystem::path& root) {
  write_folders(root);
  write_safetensors_files(root);
  write_manifests(root);
}

}  // namespace unisono::fuzz
