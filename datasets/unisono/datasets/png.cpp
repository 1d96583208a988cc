#include <fmt/format.h>
#include <png.h>
#include <setjmp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>
#include <span>
#include <string>

#include "unisono/datasets/image_codecs.h"

namespace unisono::datasets {
namespace {

constexpr std::array<std::uint8_t, 8> kPngMark{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

// The state of libpng; the destructor frees the state. Errors leave libpng by a longjmp to call(),
// which throws, as in jpeg.cpp.
class PngReader {
 public:
  explicit PngReader(const ImageFile& file) : file_(file) {
    png_ = ::png_create_read_struct(
        PNG_LIBPNG_VER_STRING,
        this,
        [](png_structp png, png_const_charp problem) {
          static_cast<PngReader*>(::png_get_error_ptr(png))->fail(problem);
        },
        [](png_structp, png_const_charp) {});
    info_ = png_ == nullptr ? nullptr : ::png_create_info_struct(png_);
    if (info_ == nullptr) {
      ::png_destroy_read_struct(&png_, nullptr, nullptr);
      throw std::bad_alloc();
    }
  }

  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  PngReader(PngReader&&) = delete;
  PngReader& operator=(PngReader&&) = delete;

  ~PngReader() { ::png_destroy_read_struct(&png_, &info_, nullptr); }

  void read_header() {
    call([this] {
      ::png_set_read_fn(png_, this, [](png_structp png, png_bytep into, std::size_t n_bytes) {
        static_cast<PngReader*>(::png_get_io_ptr(png))->read(into, n_bytes);
      });
      // Chunks that do not affect pixels are skipped, because compressed chunks can grow large.
      ::png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
      ::png_read_info(png_, info_);
    });
  }

  // Selects 8 bits for each of one or three channels. Returns the number of passes over the rows.
  [[nodiscard]] int start_image() {
    int n_passes = 0;
    call([this, &n_passes] {
      ::png_set_expand(png_);
      ::png_set_strip_16(png_);
      ::png_set_strip_alpha(png_);
      n_passes = ::png_set_interlace_handling(png_);
      ::png_read_update_info(png_, info_);
    });
    return n_passes;
  }

  void read_row(std::span<std::byte> into) {
    auto* const row = reinterpret_cast<png_bytep>(into.data());
    call([this, row] { ::png_read_row(png_, row, nullptr); });
  }

  void finish() {
    call([this] { ::png_read_end(png_, nullptr); });
  }

  [[nodiscard]] std::int64_t width() const { return ::png_get_image_width(png_, info_); }

  [[nodiscard]] std::int64_t height() const { return ::png_get_image_height(png_, info_); }

  [[nodiscard]] std::int64_t channels() const { return ::png_get_channels(png_, info_); }

  // Values of the file before start_image(), values of the output after start_image().
  [[nodiscard]] std::size_t row_bytes() const { return ::png_get_rowbytes(png_, info_); }

  [[noreturn]] void throw_damaged(const std::string& problem) const {
    file_.throw_damaged("PNG", position_, problem);
  }

 private:
  // Runs an action that calls libpng. The action must not have destructors.
  template <class Action>
  void call(Action action) {
    if (::setjmp(jump_) != 0) {
      throw_damaged(message_.data());
    }
    action();
  }

  [[noreturn]] void fail(const char* problem) {
    std::snprintf(message_.data(), message_.size(), "%s", problem);
    ::longjmp(jump_, 1);
  }

  void read(png_bytep into, std::size_t n_bytes) {
    if (n_bytes > file_.bytes.size() - position_) {
      position_ = file_.bytes.size();
      fail("it ends early");
    }
    std::memcpy(into, file_.bytes.data() + position_, n_bytes);
    position_ += n_bytes;
  }

  const ImageFile& file_;
  std::size_t position_ = 0;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::array<char, 256> message_{};
  jmp_buf jump_{};
};

// A byte of deflate data expands to at most 1032 bytes. The size of the file therefore bounds the
// memory, also for an interlaced image, which needs all rows at once.
void check_for_bytes(const PngReader& reader, std::size_t file_bytes) {
  constexpr std::uint64_t kMostOfAByte = 1032;
  if (static_cast<std::uint64_t>(reader.height()) * reader.row_bytes() / kMostOfAByte >
      file_bytes) {
    reader.throw_damaged(
        fmt::format("it ends early: its bytes are too few for the {} x {} pixels (height x width) "
                    "of its header",
                    reader.height(),
                    reader.width()));
  }
}

}  // namespace

bool is_png(const ImageFile& file) {
  return file.begins_with(kPngMark);
}

ImageRows decode_png(const ImageFile& file) {
  PngReader reader(file);
  reader.read_header();
  file.check_size(reader.width(), reader.height());
  check_for_bytes(reader, file.bytes.size());
  const int n_passes = reader.start_image();
  ImageRows rows{.channels = reader.channels(),
                 .width = reader.width(),
                 .height = reader.height(),
                 .pixels = {}};
  for (std::int64_t row = 0; row < rows.height; ++row) {
    const std::span<std::byte> into = rows.add_row();
    if (n_passes == 1) {
      reader.read_row(into);
    }
  }
  for (int pass = 0; n_passes > 1 && pass < n_passes; ++pass) {
    for (std::int64_t row = 0; row < rows.height; ++row) {
      reader.read_row(
          std::span(rows.pixels)
              .subspan(static_cast<std::size_t>(row) * rows.row_bytes(), rows.row_bytes()));
    }
  }
  reader.finish();
  return rows;
}

}  // namespace unisono::datasets
