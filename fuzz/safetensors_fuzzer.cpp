// safetensors files.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/checkpoint/checked_file.h"
#include "unisono/checkpoint/safetensors.h"
#include "unisono/checkpoint/safetensors_header.h"
#include "unisono/checkpoint/tensor_box.h"

#include "expect.h"
#include "input.h"
#include "memory_file.h"

namespace {

using unisono::checkpoint::TensorInfo;
using unisono::fuzz::expect;

std::vector<TensorInfo> infos_of(const unisono::checkpoint::SafetensorsHeader& header) {
  std::vector<TensorInfo> infos;
  for (const unisono::checkpoint::StoredTensor& tensor : header.tensors) {
    infos.push_back(tensor.info);
  }
  return infos;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const unisono::fuzz::MemoryFile file({reinterpret_cast<const char*>(data), size});
  try {
    unisono::checkpoint::SafetensorsFile tensors(file.path());
    std::size_t n_bytes = 0;
    for (std::size_t i = 0; i < tensors.header().tensors.size(); ++i) {
      std::vector<std::byte> bytes(tensors.header().tensors[i].n_bytes);
      tensors.read(i, 0, bytes);
      n_bytes += bytes.size();
    }
    expect(n_bytes < size, "tensors lie in the file, and not one in another");
    const std::vector<TensorInfo> infos = infos_of(tensors.header());
    const auto again =
        unisono::checkpoint::encode_header(infos, tensors.header().metadata, "again");
    expect(again.order.size() == infos.size(), "what was read can be written");
    int previous = 128;
    for (const std::size_t index : again.order) {
      expect(infos[index].dtype.n_bits() <= previous, "the largest elements come first");
      previous = infos[index].dtype.n_bits();
    }
  } catch (const unisono::Error& error) {
    expect(error.code() == unisono::ErrorCode::kCorruptData, error.what());
  }
  return 0;
}
