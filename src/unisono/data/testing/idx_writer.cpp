#include "unisono/data/testing/idx_writer.h"

#include <stdlib.h>
#include <zconf.h>
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <string>
#include <system_error>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/error.h"

namespace unisono::data::testing {

TempFolder::TempFolder() : path_(::testing::TempDir() + "unisono_data_XXXXXX") {
  UNISONO_CHECK(::mkdtemp(path_.data()) != nullptr, "mkdtemp failed for " + path_);
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TempFolder::write(const std::string& name, const std::string& bytes) const {
  const std::filesystem::path path = std::filesystem::path(path_) / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  UNISONO_CHECK(file.good(), "can't write " + path.string());
  return path.string();
}

std::string idx_bytes(std::uint8_t type_code,
                      const std::vector<std::uint32_t>& dims,
                      const std::string& elements) {
  std::string bytes{'\0', '\0', static_cast<char>(type_code), static_cast<char>(dims.size())};
  for (const std::uint32_t dim : dims) {
    for (const int shift : {24, 16, 8, 0}) {
      bytes += static_cast<char>(dim >> shift & 0xff);
    }
  }
  return bytes + elements;
}

std::string gzip(const std::string& bytes) {
  z_stream stream{};
  UNISONO_CHECK(
      ::deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK,
      "deflateInit2");
  std::string packed(::deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  UNISONO_CHECK(::deflate(&stream, Z_FINISH) == Z_STREAM_END, "deflate");
  packed.resize(stream.total_out);
  ::deflateEnd(&stream);
  return packed;
}

std::string some_bytes(std::size_t n_bytes) {
  std::string bytes;
  for (std::size_t i = 0; i < n_bytes; ++i) {
    bytes += static_cast<char>(i * 7 % 251);
  }
  return bytes;
}

}  // namespace unisono::data::testing
