// The seeds of the targets of checkpoint/, written with its own encoders.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "unisono/base/dtype.h"
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
      {.name = "none", .dtype = DType::kBFloat16, .shape = {0, 4}}};
  const std::string sharding =
      R"({"weight": {"saved_offsets": [2, 0]}, "step": {"saved_offsets": []}})";
  const std::string whole =
      encode_header(tensors, {{"DCP_SHARDING_INFO", sharding}, {"format", "pt"}}, "seed").bytes +
      std::string(32, '\1');
  corpus.add("tensors", bytes_of(whole));
  corpus.add("truncated", bytes_of(whole.substr(0, whole.size() - 1)));
  corpus.add("empty", bytes_of(encode_header({}, {}, "seed").bytes));
  std::string doubled = whole;
  doubled.replace(doubled.find("\"none\""), 6, "\"step\"");
  corpus.add("doubled", bytes_of(doubled));
}

// The first byte says what the rest is.
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

}  // namespace

void write_checkpoints(const std::filesystem::path& root) {
  write_safetensors_files(root);
  write_manifests(root);
}

}  // namespace unisono::fuzz
