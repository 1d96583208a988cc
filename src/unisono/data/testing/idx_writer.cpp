#include "unisono/data/testing/idx_writer.h"

#include <zconf.h>
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "unisono/base/error.h"

namespace unisono::data::testing {

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
