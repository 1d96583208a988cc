// Manifests of checkpoints, and the metadata that list the parts of tensors in a file.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/checkpoint/json.h"
#include "unisono/checkpoint/manifest.h"
#include "unisono/checkpoint/safetensors.h"
#include "unisono/checkpoint/safetensors_header.h"
#include "unisono/checkpoint/tensor_box.h"

#include "expect.h"
#include "input.h"

namespace {

using unisono::ErrorCode;
using unisono::fuzz::expect;

// Returns the content with its correct checksum, which random inputs would not contain.
std::string with_sum(const std::string& content) {
  const nlohmann::json parsed = unisono::checkpoint::parse_json_object(content, "content");
  const std::string text = unisono::checkpoint::dump_json(parsed, "content");
  const std::uint32_t crc = unisono::checkpoint::crc32_of(std::as_bytes(std::span(text)));
  return fmt::format(R"({{"crc32":"{:08x}","manifest":{}}})", crc, text);
}

void read_manifest(const std::string& content) {
  try {
    const unisono::checkpoint::Manifest manifest =
        unisono::checkpoint::decode_manifest(with_sum(content), "manifest");
    expect(unisono::checkpoint::decode_manifest(unisono::checkpoint::encode_manifest(manifest),
                                                "again") == manifest,
           "a manifest is read as it was written");
  } catch (const unisono::Error& error) {
    expect(error.code() == ErrorCode::kCorruptData || error.code() == ErrorCode::kIncompatible,
           error.what());
  }
}

void read_sharding(const std::string& text) {
  const unisono::checkpoint::SafetensorsHeader header{
      .tensors = {{.info = {.name = "weight", .dtype = unisono::DType::kFloat32, .shape = {2, 3}},
                   .offset = 0,
                   .n_bytes = 24}},
      .metadata = {{"DCP_SHARDING_INFO", text}}};
  try {
    for (const auto& part : unisono::checkpoint::sharding_of(header, "file").parts) {
      expect(is_within(part.box, part.tensor.shape), "a part lies in its tensor");
      expect(part.box.sizes == header.tensors[0].info.shape, "a part is what the file has");
    }
  } catch (const unisono::Error& error) {
    expect(error.code() == ErrorCode::kCorruptData, error.what());
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  unisono::fuzz::Input input(data, size);
  const bool is_manifest = input.take_u8() == 0;
  const std::string text(reinterpret_cast<const char*>(input.rest().data()), input.rest().size());
  if (is_manifest) {
    read_manifest(text);
  } else {
    read_sharding(text);
  }
  return 0;
}
