#include <fmt/format.h>
#include <setjmp.h>

#include "unisono/datasets/image_codecs.h"

// clang-format off
#include <cstdio>  // needed by jpeglib.h
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace unisono::datasets {
namespace {

constexpr std::array<std::uint8_t, 3> kJpegMark{0xff, 0xd8, 0xff};

// Limit of scans. Ten scans are usual; each scan costs a pass over the whole image.
constexpr int kMaxScans = 100;
constexpr const char* kTooManyScans = "it has more than 100 scans";

// Warnings of libjpeg that leave the pixels correct.
bool is_harmless(int warning) {
  constexpr std::array<int, 4> kHarmless{
      JWRN_ADOBE_XFORM, JWRN_BOGUS_ICC, JWRN_EXTRANEOUS_DATA, JWRN_JFIF_MAJOR};
  return std::ranges::find(kHarmless, warning) != kHarmless.end();
}

// The state of libjpeg; the destructor frees the state.
//
// libjpeg's error function must not return, and an exception cannot pass the C frames of libjpeg.
// The function therefore calls longjmp to call(), which throws. Only C frames and an action without
// destructors lie between both.
class Decompressor {
 public:
  explicit Decompressor(const ImageFile& file) : file_(file) {
    state_.err = ::jpeg_std_error(&errors_);
    state_.client_data = this;
    errors_.error_exit = [](j_common_ptr state) { of(state).fail_with_libjpegs_message(); };
    errors_.emit_message = [](j_common_ptr state, int level) {
      if (state->err->msg_code == JWRN_JPEG_EOF) {
        of(state).has_ended_ = true;
        of(state).fail("it ends early");
      }
      if (level < 0 && !is_harmless(state->err->msg_code)) {
        of(state).fail_with_libjpegs_message();
      }
    };
    progress_.progress_monitor = [](j_common_ptr state) {
      if (of(state).state_.input_scan_number > kMaxScans) {
        of(state).fail(kTooManyScans);
      }
    };
  }

  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;
  Decompressor(Decompressor&&) = delete;
  Decompressor& operator=(Decompressor&&) = delete;

  ~Decompressor() { ::jpeg_destroy_decompress(&state_); }

  [[nodiscard]] jpeg_decompress_struct& state() { return state_; }

  void read_header() {
    call([this] {
      ::jpeg_create_decompress(&state_);
      ::jpeg_mem_src(
          &state_, reinterpret_cast<const unsigned char*>(file_.bytes.data()), file_.bytes.size());
      state_.progress = &progress_;
      ::jpeg_read_header(&state_, TRUE);
    });
  }

  // Runs an action that calls libjpeg. The action must not have destructors.
  template <class Action>
  void call(Action action) {
    if (::setjmp(jump_) != 0) {
      throw_damaged(message_.data());
    }
    action();
  }

  [[noreturn]] void throw_damaged(const std::string& problem) const {
    const std::size_t n_left =
        has_ended_ || state_.src == nullptr ? 0 : state_.src->bytes_in_buffer;
    file_.throw_damaged("JPEG", file_.bytes.size() - n_left, problem);
  }

 private:
  static Decompressor& of(j_common_ptr state) {
    return *static_cast<Decompressor*>(state->client_data);
  }

  [[noreturn]] void fail(const char* problem) {
    std::snprintf(message_.data(), message_.size(), "%s", problem);
    ::longjmp(jump_, 1);
  }

  [[noreturn]] void fail_with_libjpegs_message() {
    errors_.format_message(reinterpret_cast<j_common_ptr>(&state_), message_.data());
    ::longjmp(jump_, 1);
  }

  const ImageFile& file_;
  jpeg_decompress_struct state_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  std::array<char, JMSG_LENGTH_MAX> message_{};
  bool has_ended_ = false;
  jmp_buf jump_{};
};

// A Huffman code has at least one bit per block of 8 x 8 values. libjpeg's memory for a whole
// progressive image is therefore at most 1 KiB per byte of the file.
void check_for_bits(const Decompressor& decompressor,
                    const jpeg_decompress_struct& state,
                    std::size_t file_bytes) {
  if (state.arith_code != FALSE) {
    return;
  }
  std::uint64_t n_blocks = 0;
  for (const jpeg_component_info& component :
       std::span(state.comp_info, static_cast<std::size_t>(state.num_components))) {
    n_blocks += std::uint64_t{component.width_in_blocks} * component.height_in_blocks;
  }
  if (n_blocks > 8 * std::uint64_t{file_bytes}) {
    decompressor.throw_damaged(
        fmt::format("it ends early: its bytes are too few for the {} x {} pixels (height x width) "
                    "of its header",
                    state.image_height,
                    state.image_width));
  }
}

// libjpeg returns the four inks in the form of Adobe's programs: 255 means no ink.
void cmyk_to_rgb(std::span<const std::byte> inks, std::span<std::byte> into) {
  for (std::size_t pixel = 0; pixel < into.size() / 3; ++pixel) {
    const auto black = std::to_integer<unsigned>(inks[4 * pixel + 3]);
    for (std::size_t channel = 0; channel < 3; ++channel) {
      const auto ink = std::to_integer<unsigned>(inks[4 * pixel + channel]);
      into[3 * pixel + channel] = static_cast<std::byte>((2 * ink * black + 255) / 510);
    }
  }
}

J_COLOR_SPACE choose_output(const Decompressor& decompressor, const jpeg_decompress_struct& state) {
  switch (state.jpeg_color_space) {
    case JCS_GRAYSCALE:
      return JCS_GRAYSCALE;
    case JCS_RGB:
    case JCS_YCbCr:
      return JCS_RGB;
    case JCS_CMYK:
    case JCS_YCCK:
      return JCS_CMYK;
    default:
      decompressor.throw_damaged(fmt::format(
          "its {} components are neither gray nor color nor CMYK", state.num_components));
  }
}

}  // namespace

bool is_jpeg(const ImageFile& file) {
  return file.begins_with(kJpegMark);
}

ImageRows decode_jpeg(const ImageFile& file) {
  Decompressor decompressor(file);
  jpeg_decompress_struct& state = decompressor.state();
  decompressor.read_header();
  file.check_size(state.image_width, state.image_height);
  check_for_bits(decompressor, state, file.bytes.size());
  state.out_color_space = choose_output(decompressor, state);
  decompressor.call([&state] { ::jpeg_start_decompress(&state); });

  const bool is_cmyk = state.out_color_space == JCS_CMYK;
  ImageRows rows{.channels = is_cmyk ? 3 : state.output_components,
                 .width = state.output_width,
                 .height = state.output_height,
                 .pixels = {}};
  std::vector<std::byte> inks(is_cmyk ? std::size_t{4} * state.output_width : 0);
  for (std::int64_t row = 0; row < rows.height; ++row) {
    const std::span<std::byte> into = rows.add_row();
    auto* line = reinterpret_cast<JSAMPROW>(is_cmyk ? inks.data() : into.data());
    decompressor.call([&state, &line] { ::jpeg_read_scanlines(&state, &line, 1); });
    if (is_cmyk) {
      cmyk_to_rgb(inks, into);
    }
  }
  decompressor.call([&state] { ::jpeg_finish_decompress(&state); });
  return rows;
}

}  // namespace unisono::datasets
