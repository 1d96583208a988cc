#include "unisono/datasets/idx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/datasets/data_files.h"
#include "unisono/datasets/image_dataset.h"

namespace unisono::datasets {
namespace {

constexpr std::size_t kMagicBytes = 4;
constexpr std::size_t kDimBytes = 4;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62;

[[noreturn]] void throw_corrupt(const std::string& path, const std::string& problem) {
  throw Error(ErrorCode::kCorruptData, fmt::format("{}: {}", path, problem));
}

std::optional<DType> dtype_of_code(std::byte code) {
  switch (std::to_integer<int>(code)) {
    case 0x08:
      return DType::kUInt8;
    case 0x09:
      return DType::kInt8;
    case 0x0b:
      return DType::kInt16;
    case 0x0c:
      return DType::kInt32;
    case 0x0d:
      return DType::kFloat32;
    case 0x0e:
      return DType::kFloat64;
    default:
      return std::nullopt;
  }
}

// The bytes as text if they are text, such as those of a saved web page.
std::string describe(std::span<const std::byte> bytes) {
  std::string hex;
  std::string text;
  for (const std::byte byte : bytes) {
    const int value = std::to_integer<int>(byte);
    hex += fmt::format("{}{:02x}", hex.empty() ? "" : " ", value);
    text += std::isprint(value) != 0 ? static_cast<char>(value) : '.';
  }
  return fmt::format("{} \"{}\"", hex, text);
}

struct Header {
  DType dtype = DType::kUInt8;
  std::vector<std::int64_t> dims;

  [[nodiscard]] std::uint64_t n_bytes() const {
    return kMagicBytes + kDimBytes * static_cast<std::uint64_t>(dims.size());
  }
};

Header read_header(FileSource& source, const std::string& path) {
  std::array<std::byte, kMagicBytes> magic{};
  const std::size_t n_magic = source.read(magic);
  if (n_magic < magic.size()) {
    throw_corrupt(path,
                  fmt::format("not an IDX file: it has {} bytes, an IDX header begins with {}",
                              n_magic,
                              magic.size()));
  }
  const std::optional<DType> dtype = dtype_of_code(magic[2]);
  const std::size_t n_dims = std::to_integer<std::size_t>(magic[3]);
  if (magic[0] != std::byte{0} || magic[1] != std::byte{0}) {
    throw_corrupt(path,
                  fmt::format("not an IDX file: it begins with {}, an IDX file with two zero bytes",
                              describe(magic)));
  }
  if (!dtype) {
    throw_corrupt(path,
                  fmt::format("not an IDX file, or a damaged one: its type code is 0x{:02x}; known "
                              "are 08 (u8), 09 (i8), 0b (i16), 0c (i32), 0d (f32), 0e (f64)",
                              std::to_integer<int>(magic[2])));
  }
  if (n_dims == 0) {
    throw_corrupt(path, "not an IDX file, or a damaged one: its header has 0 dimensions");
  }
  std::vector<std::byte> raw(n_dims * kDimBytes);
  const std::size_t n_raw = source.read(raw);
  if (n_raw < raw.size()) {
    throw_corrupt(path,
                  fmt::format("truncated: it ends inside the header, which has {} bytes for {} "
                              "dimensions; {} are there",
                              kMagicBytes + raw.size(),
                              n_dims,
                              kMagicBytes + n_raw));
  }
  Header header{.dtype = *dtype, .dims = std::vector<std::int64_t>(n_dims)};
  for (std::size_t at = 0; at < raw.size(); ++at) {
    std::int64_t& dim = header.dims[at / kDimBytes];
    dim = dim << 8 | std::to_integer<std::int64_t>(raw[at]);
  }
  return header;
}

std::uint64_t element_bytes(const Header& header, const std::string& path, std::uint64_t max) {
  std::uint64_t n_bytes = std::ranges::find(header.dims, 0) == header.dims.end()
                              ? std::uint64_t{size_of(header.dtype)}
                              : 0;
  bool too_large = false;
  for (const std::int64_t dim : header.dims) {
    too_large = too_large ||
                __builtin_mul_overflow(n_bytes, static_cast<std::uint64_t>(dim), &n_bytes) ||
                n_bytes > max;
  }
  if (too_large) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: too large, or a damaged header: {} elements of type {} take more "
                            "than the limit of {} bytes",
                            path,
                            fmt::join(header.dims, " x "),
                            to_string(header.dtype),
                            max));
  }
  return n_bytes;
}

[[noreturn]] void throw_truncated(const std::string& path,
                                  const Header& header,
                                  std::uint64_t n_expected,
                                  std::uint64_t n_found) {
  throw_corrupt(path,
                fmt::format("truncated: {} of {} bytes are there ({} elements of type {} after a "
                            "header of {} bytes); fetch the file again",
                            header.n_bytes() + n_found,
                            header.n_bytes() + n_expected,
                            fmt::join(header.dims, " x "),
                            to_string(header.dtype),
                            header.n_bytes()));
}

std::vector<std::byte> read_elements(FileSource& source,
                                     const std::string& path,
                                     const Header& header,
                                     std::uint64_t n_expected) {
  // The size of a plain file decides before any allocation.
  if (const std::optional<std::uint64_t> content = source.content_bytes();
      content && *content < header.n_bytes() + n_expected) {
    throw_truncated(path, header, n_expected, *content - header.n_bytes());
  }
  std::vector<std::byte> bytes;
  if (const std::uint64_t n_read = source.append(n_expected, bytes); n_read < n_expected) {
    throw_truncated(path, header, n_expected, n_read);
  }
  // For gzip this read also checks the check sum after the last byte.
  std::array<std::byte, 1> extra{};
  if (source.read(extra) != 0) {
    throw_corrupt(path,
                  fmt::format("bytes are left over after the {} that its header announces ({} "
                              "elements of type {})",
                              header.n_bytes() + n_expected,
                              fmt::join(header.dims, " x "),
                              to_string(header.dtype)));
  }
  return bytes;
}

// IDX is big-endian.
void to_native_order(std::vector<std::byte>& bytes, std::size_t element_size) {
  if constexpr (std::endian::native == std::endian::little) {
    if (element_size == 1) {
      return;
    }
    for (auto element = bytes.begin(); element != bytes.end();) {
      const auto end = element + static_cast<std::ptrdiff_t>(element_size);
      std::reverse(element, end);
      element = end;
    }
  }
}

}  // namespace

IdxArray read_idx(const std::string& path, std::uint64_t max_bytes) {
  FileSource source(path);
  Header header = read_header(source, path);
  const std::uint64_t n_bytes = element_bytes(header, path, std::min(max_bytes, kMostBytes));
  std::vector<std::byte> bytes = read_elements(source, path, header, n_bytes);
  to_native_order(bytes, size_of(header.dtype));
  return {.dtype = header.dtype, .dims = std::move(header.dims), .bytes = std::move(bytes)};
}

namespace {

struct SplitNames {
  const char* title;
  const char* images;
  const char* labels;
};

constexpr SplitNames kTrainNames{.title = "training set",
                                 .images = "train-images-idx3-ubyte",
                                 .labels = "train-labels-idx1-ubyte"};
constexpr SplitNames kTestNames{
    .title = "test set", .images = "t10k-images-idx3-ubyte", .labels = "t10k-labels-idx1-ubyte"};

constexpr const char* kWhereFrom =
    "the Debian and Ubuntu package dataset-fashion-mnist brings Fashion-MNIST to "
    "/usr/share/datasets/fashion-mnist";

struct SplitFiles {
  std::string images;
  std::string labels;
};

// Archives of Kaggle have a dot in place of the second dash.
Spellings spellings_of(const std::string& name) {
  std::string other = name;
  other[name.find("-idx")] = '.';
  return {name, std::move(other)};
}

SplitFiles find_files(const std::string& folder, const SplitNames& names) {
  check_data_folder(folder, kWhereFrom);
  const FoundFiles found = find_data_files(
      folder, "MNIST/raw", {spellings_of(names.images), spellings_of(names.labels)});
  if (found.missing.empty()) {
    return {.images = found.paths[0], .labels = found.paths[1]};
  }
  if (!found.paths.empty()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("data folder \"{}\": {} is there, but not {} (plain or .gz) beside it",
                            folder,
                            found.paths.front(),
                            found.missing.front()));
  }
  throw Error(ErrorCode::kNotFound,
              fmt::format("data folder \"{0}\": no {1} in it; looked for {2} and {3}, plain or "
                          ".gz, in {0}, {0}/MNIST/raw and the other folders in {0}; {4}",
                          folder,
                          names.title,
                          names.images,
                          names.labels,
                          kWhereFrom));
}

std::string shape_text(const IdxArray& array) {
  std::string text = to_string(array.dtype);
  const char* separator = "[";
  for (const std::int64_t dim : array.dims) {
    text += fmt::format("{}{}", separator, dim);
    separator = ", ";
  }
  return text + "]";
}

IdxArray read_bytes(const std::string& path, std::size_t n_dims, const char* meaning) {
  IdxArray array = read_idx(path);
  if (array.dtype != DType::kUInt8 || array.dims.size() != n_dims) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: holds {}, but {} are u8 with {} dimension{}",
                            path,
                            shape_text(array),
                            meaning,
                            n_dims,
                            n_dims == 1 ? "" : "s"));
  }
  return array;
}

void check_labels(const std::vector<std::byte>& labels, const std::string& path) {
  constexpr std::byte kMaxLabel{9};
  const auto bad = std::ranges::find_if(labels, [](std::byte label) { return label > kMaxLabel; });
  if (bad != labels.end()) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: label {} of {} is {}; labels are 0 to 9",
                            path,
                            bad - labels.begin(),
                            labels.size(),
                            std::to_integer<int>(*bad)));
  }
}

}  // namespace

LabeledImages load_mnist(const std::string& folder, Split split) {
  const SplitFiles files = find_files(folder, split == Split::kTrain ? kTrainNames : kTestNames);
  IdxArray images = read_bytes(files.images, 3, "images");
  IdxArray labels = read_bytes(files.labels, 1, "labels");
  if (images.dims[0] != labels.dims[0]) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{} has {} images, but {} has {} labels: they don't belong together",
                            files.images,
                            images.dims[0],
                            files.labels,
                            labels.dims[0]));
  }
  if (images.bytes.empty()) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: has no pixels: {}", files.images, shape_text(images)));
  }
  check_labels(labels.bytes, files.labels);
  return {.height = images.dims[1],
          .width = images.dims[2],
          .pixels = std::move(images.bytes),
          .labels = std::move(labels.bytes)};
}

}  // namespace unisono::datasets
