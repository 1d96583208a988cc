// Folders of checkpoints: two files that together are to have all parts of the tensors, or the text
// that names the latest one. Input: a byte that says which; the two bytes of the first file's size.
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/checkpoint/folder.h"
#include "unisono/checkpoint/reader.h"
#include "unisono/checkpoint/tensor_box.h"

#include "expect.h"
#include "input.h"

namespace unisono::fuzz {
namespace {

namespace fs = std::filesystem;

// In memory where there is such a file system.
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

// Whole and by halves, which must be the same.
void read_tensor(checkpoint::Reader& reader, const checkpoint::CheckpointTensor& tensor) {
  const checkpoint::Box box = checkpoint::whole_box(tensor.info.shape);
  std::vector<std::byte> whole(*checkpoint::count_bytes(tensor.info.dtype, box.sizes));
  reader.read(tensor.info.name, whole);
  if (box.sizes.empty()) {
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

void read_files(Input& input) {
  const std::size_t low = input.take_u8();
  const std::size_t n_first = low + 256 * std::size_t{input.take_u8()};
  static const Folder folder;
  folder.write("model-00001-of-00002.safetensors", input.take(n_first));
  folder.write("model-00002-of-00002.safetensors", input.rest());
  try {
    checkpoint::Reader reader(folder.path());
    for (const auto& [name, tensor] : reader.tensors()) {
      read_tensor(reader, tensor);
    }
  } catch (const Error& error) {
    expect(error.code() == ErrorCode::kCorruptData, error.what());
  }
}

void read_latest(Input& input) {
  static const Folder folder;
  const std::string only = folder.path() + "/" + checkpoint::checkpoint_name(7);
  fs::create_directory(only);
  folder.write("latest", input.rest());
  try {
    expect(checkpoint::latest_checkpoint(folder.path()) == only, "the latest is one that is there");
  } catch (const Error& error) {
    expect(error.code() == ErrorCode::kCorruptData, error.what());
  }
}

}  // namespace
}  // namespace unisono::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  unisono::fuzz::Input input(data, size);
  if (input.take_u8() == 0) {
    unisono::fuzz::read_files(input);
  } else {
    unisono::fuzz::read_latest(input);
  }
  return 0;
}
