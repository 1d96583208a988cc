#include "unisono/data/testing/tar_writer.h"

#include <array>
#include <cstddef>
#include <cstdio>
#include <string>

namespace unisono::data::testing {
namespace {

constexpr std::size_t kBlockBytes = 512;

std::string octal(std::size_t value, int n_digits) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%0*zo", n_digits, value);
  return text.data();
}

}  // namespace

std::string tar_header(const std::string& name,
                       const std::string& size,
                       char type,
                       const std::string& prefix) {
  std::string block(kBlockBytes, '\0');
  block.replace(0, name.size(), name);
  block.replace(100, 7, "0000644");
  block.replace(124, size.size(), size);
  block.replace(136, 11, "00000000000");
  block[156] = type;
  block.replace(257, 8, std::string("ustar\00000", 8));
  block.replace(345, prefix.size(), prefix);
  return with_sum(block);
}

std::string with_sum(std::string block) {
  block.replace(148, 8, "        ");
  std::size_t sum = 0;
  for (const char byte : block) {
    sum += static_cast<unsigned char>(byte);
  }
  block.replace(148, 7, octal(sum, 6) + std::string(1, '\0'));
  return block;
}

std::string tar_entry(const std::string& name,
                      const std::string& content,
                      char type,
                      const std::string& prefix) {
  const std::size_t n_padding = (kBlockBytes - content.size() % kBlockBytes) % kBlockBytes;
  return tar_header(name, octal(content.size(), 11), type, prefix) + content +
         std::string(n_padding, '\0');
}

std::string pax_record(const std::string& key, const std::string& value) {
  const std::string rest = " " + key + "=" + value + "\n";
  std::size_t n_bytes = rest.size() + 1;
  while (std::to_string(n_bytes).size() + rest.size() != n_bytes) {
    ++n_bytes;
  }
  return std::to_string(n_bytes) + rest;
}

std::string tar_end() {
  return std::string(2 * kBlockBytes, '\0');
}

}  // namespace unisono::data::testing
