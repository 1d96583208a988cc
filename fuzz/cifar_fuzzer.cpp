// CIFAR files of the binary version, plain and gzip, of the kind that the first byte says.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "unisono/base/error.h"
#include "unisono/data/image_dataset.h"
#include "unisono/data/readers/cifar.h"

#include "expect.h"
#include "input.h"
#include "memory_file.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using unisono::fuzz::expect;
  unisono::fuzz::Input input(data, size);
  const auto kind = static_cast<unisono::CifarKind>(input.take_u8() % 3);
  const auto rest = input.rest();
  const unisono::fuzz::MemoryFile file({reinterpret_cast<const char*>(rest.data()), rest.size()});
  const std::string path = file.path();
  try {
    const unisono::LabeledImages images = unisono::read_cifar(std::span(&path, 1), kind);
    expect(images.size() > 0, "there are images");
    expect(images.pixels.size() == images.labels.size() * 3072, "each has its pixels");
  } catch (const unisono::Error& error) {
    expect(error.code() == unisono::ErrorCode::kCorruptData, error.what());
  }
  return 0;
}
