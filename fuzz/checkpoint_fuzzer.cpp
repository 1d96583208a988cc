// Folders of checkpoints: two files that should together contain all parts of the tensors, with and
// without a manifest; the text that names the latest checkpoint; the index of a model. Input: a
// byte that selects the kind; for files, two bytes with the size of the first file.
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/checkpoint/folder.h"
#include "unisono/checkpoint/latest.h"
#include "unisono/checkpoint/manifest.h"
#include "unisono/checkpoint/reader.h"
#include "unisono/checkpoint/safetensors.h"
#include "unisono/checkpoint/tensor_box.h"

#include "expect.h"
#include "input.h"

namespace unisono::fuzz {
namespace {

namespace fs = std::filesystem;

// A temporary folder, in memory if /dev/shm exists.
class Folder {
 public:
  Folder() : path_(fs::exists("/dev/shm") ? "/dev/shm/fuzz-XXXXXX" : "/tmp/fuzz-XXXXXX") {
    expect(::mkdtemp(path_.data()) != nullptr, "a folder can be made");
  }

  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  Folder(Folder&&) = delete;
  Folder& operator=(Folder&&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

  void write(const std::string& name, std::span<const std::byte> bytes) const {
    std::ofstream file(path_ + "/" + name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    expect(file.flush().good(), "a file can be written");
  }

 private:
  std::string path_;
};

// Reads the tensor as a whole and in halves, and expects equal bytes.
void read_tensor(checkpoint::Reader& reader, const checkpoint::CheckpointTensor& tensor) {
  const checkpoint::Box box = checkpoint::whole_box(tensor.info.shape);
  const bool can_be_cut = tensor.info.dtype.n_bits() % 8 == 0;
  if (!can_be_cut && tensor.boxes.size() > 1) {
    return;
  }
  std::vector<std::byte> whole(*checkpoint::count_bytes(tensor.info.dtype, box.sizes));
  reader.read(tensor.info.name, whole);
  if (box.sizes.empty() || !can_be_cut) {
    return;
  }
  std::vector<std::byte> halves;
  for (const int half : {0, 1}) {
    const checkpoint::Box rows = checkpoint::rows_of_rank(tensor.info.shape, half, 2);
    std::vector<std::byte> bytes(*checkpoint::count_bytes(tensor.info.dtype, rows.sizes));
    reader.read(tensor.info.name, rows, bytes);
    halves.insert(halves.end(), bytes.begin(), bytes.end());
  }
  expect(halves == whole, "a part has the bytes that the whole tensor has");
}

void read_folder(const std::string& path) {
  try {
    checkpoint::Reader reader(path);
    for (const auto& [name, tensor] : reader.tensors()) {
      read_tensor(reader, tensor);
    }
  } catch (const Error& error) {
    expect(error.code() == ErrorCode::kCorruptData, error.what());
  }
}

checkpoint::Shard write_shard(const Folder& folder,
                              const std::string& name,
                              std::span<const std::byte> bytes) {
  folder.write(name, bytes);
  checkpoint::FileSummer summer;
  summer.add(bytes);
  return {.file = name, .sums = summer.sums()};
}

void write_manifest(const Folder& folder, std::vector<checkpoint::Shard> shards) {
  const auto world_size = static_cast<int>(shards.size());
  const std::string text = checkpoint::encode_manifest(
      {.release = "1", .step = 7, .world_size = world_size, .shards = std::move(shards)});
  folder.write(checkpoint::kManifestName, std::as_bytes(std::span(text)));
}

void read_files(Input& input, bool has_manifest) {
  const std::size_t low = input.take_u8();
  const std::size_t n_first = low + 256 * std::size_t{input.take_u8()};
  static const Folder with_manifest;
  static const Folder of_others;
  const Folder& folder = has_manifest ? with_manifest : of_others;
  const checkpoint::Shard first =
      write_shard(folder, "model-00001-of-00002.safetensors", input.take(n_first));
  const checkpoint::Shard second =
      write_shard(folder, "model-00002-of-00002.safetensors", input.rest());
  if (has_manifest) {
    write_manifest(folder, {first, second});
  }
  read_folder(folder.path());
}

// For any content of "latest", the reader returns the only checkpoint.
void read_latest(Input& input) {
  static const Folder folder;
  const std::string only = folder.path() + "/" + checkpoint::checkpoint_name(7);
  static const bool is_written = [&] {
    const Folder shards;
    write_manifest(shards, {write_shard(shards, "a.safetensors", {})});
    fs::copy(shards.path(), only);
    return true;
  }();
  expect(is_written, "a checkpoint can be written");
  folder.write("latest", input.rest());
  expect(checkpoint::latest_checkpoint(folder.path()) == only, "the latest is one that is there");
}

void read_index(Input& input) {
  static const Folder folder;
  static const checkpoint::FileSums sums = checkpoint::write_safetensors(
      folder.path() + "/a.safetensors",
      std::vector<checkpoint::TensorBytes>{
          {.info = {.name = "a", .dtype = DType::kUInt8, .shape = {0}}, .bytes = {}}});
  expect(sums.n_bytes > 0, "a file can be written");
  folder.write("model.safetensors.index.json", input.rest());
  read_folder(folder.path());
}

}  // namespace
}  // namespace unisono::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  unisono::fuzz::Input input(data, size);
  switch (input.take_u8()) {
    case 0:
      unisono::fuzz::read_files(input, false);
      break;
    case 1:
      unisono::fuzz::read_latest(input);
      break;
    case 2:
      unisono::fuzz::read_files(input, true);
      break;
    default:
      unisono::fuzz::read_index(input);
  }
  return 0;
}
