#include "unisono/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/file.h"
#include "unisono/checkpoint/checked_file.h"
#include "unisono/checkpoint/safetensors_header.h"

namespace unisono::checkpoint {
namespace {

void check_sizes(std::span<const TensorBytes> tensors, const std::string& where) {
  for (const TensorBytes& tensor : tensors) {
    if (count_bytes(tensor.info.dtype, tensor.info.shape) != tensor.bytes.size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: tensor \"{}\": {} bytes are not those of {}",
                              where,
                              tensor.info.name,
                              tensor.bytes.size(),
                              describe(tensor.info.dtype, tensor.info.shape)));
    }
  }
}

}  // namespace

FileSums write_safetensors(const std::string& path,
                           std::span<const TensorBytes> tensors,
                           const std::map<std::string, std::string>& metadata) {
  const std::string where = "save " + path;
  std::vector<TensorInfo> infos;
  infos.reserve(tensors.size());
  for (const TensorBytes& tensor : tensors) {
    infos.push_back(tensor.info);
  }
  const EncodedHeader header = encode_header(infos, metadata, where);
  check_sizes(tensors, where);
  AtomicFile file(path);
  FileSummer summer;
  const auto write = [&](std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const std::span piece = bytes.first(std::min(bytes.size(), kPieceBytes));
      file.write(piece);
      summer.add(piece);
      bytes = bytes.subspan(piece.size());
    }
  };
  write(std::as_bytes(std::span(header.bytes)));
  for (const std::size_t index : header.order) {
    write(tensors[index].bytes);
  }
  file.commit();
  return summer.sums();
}

SafetensorsFile::SafetensorsFile(const std::string& path, std::optional<FileSums> sums)
    : file_(std::make_unique<CheckedFile>(path, std::move(sums))), header_(decode_header(*file_)) {}

SafetensorsFile::~SafetensorsFile() = default;

SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

std::uint64_t SafetensorsFile::n_read() const {
  return file_->n_read();
}

void SafetensorsFile::read(std::size_t index, std::uint64_t offset, std::span<std::byte> into) {
  const StoredTensor& tensor = header_.tensors.at(index);
  if (offset > tensor.n_bytes || into.size() > tensor.n_bytes - offset) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: tensor \"{}\" has {} bytes; {} from {} on were requested",
                            file_->path(),
                            tensor.info.name,
                            tensor.n_bytes,
                            into.size(),
                            offset));
  }
  file_->read_at(tensor.offset + offset, into);
}

}  // namespace unisono::checkpoint
