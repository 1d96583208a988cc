// CIFAR files of the binary version, plain and gzip. The first byte selects the kind of file.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "unisono/base/error.h"
#include "unisono/datasets/cifar.h"
#include "unisono/datasets/image_dataset.h"

#include "expect.h"
#include "input.h"
#include "memory_file.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using unisono::fuzz::expect;
  unisono::fuzz::Input input(data, size);
  const auto kind = static_cast<unisono::datasets::CifarKind>(input.take_u8() % 3);
  const auto rest = input.rest();
  const unisono::fuzz::MemoryFile file({reinterpret_cast<const char*>(rest.data()), rest.size()});
  const std::string path = file.path();
  try {
    const unisono::datasets::LabeledImages images =
        unisono::datasets::read_cifar(std::span(&path, 1), kind);
    expect(images.size() > 0, "there are images");
    expect(images.pixels.size() == images.labels.size() * 3072, "each has its pixels");
  } catch (const unisono::Error& error) {
    expect(error.code() == unisono::ErrorCode::kCorruptData, error.what());
  }
  return 0;
}
