#include "unisono/datasets/wav.h"

#include <fmt/format.h>
#include <sndfile.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/file.h"
#include "unisono/base/text.h"

namespace unisono::datasets {
namespace {

// The chunks of a WAV file that a decoder needs, as parts of the file's bytes.
struct WavChunks {
  std::span<const std::byte> format;
  std::span<const std::byte> samples;
  // True if the header states no size. `samples` then extend to the end of the file.
  bool is_streamed = false;
};

constexpr std::size_t kChunkHeaderBytes = 8;
constexpr std::size_t kFormatBytes = 16;
constexpr std::size_t kSubformatAt = 24;
constexpr std::uint16_t kExtensible = 0xFFFE;
// Integers, floating point, A-law, mu-law.
constexpr std::array<std::uint16_t, 4> kPlainFormats{1, 3, 6, 7};

std::string_view text_at(std::span<const std::byte> file, std::size_t at) {
  return {reinterpret_cast<const char*>(file.data()) + at, 4};
}

template <class Number>
Number number_at(std::span<const std::byte> bytes, std::size_t at) {
  Number number = 0;
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

[[noreturn]] void throw_bad(const std::string& name,
                            std::size_t offset,
                            const std::string& problem) {
  throw Error(ErrorCode::kCorruptData, fmt::format("{}: at offset {}: {}", name, offset, problem));
}

void check_format(std::span<const std::byte> format, const std::string& name, std::size_t offset) {
  if (format.size() < kFormatBytes) {
    throw_bad(
        name,
        offset,
        fmt::format(
            "the chunk \"fmt \" has {} bytes; {} are the least", format.size(), kFormatBytes));
  }
  auto tag = number_at<std::uint16_t>(format, 0);
  if (tag == kExtensible && format.size() >= kSubformatAt + sizeof(tag)) {
    tag = number_at<std::uint16_t>(format, kSubformatAt);
  }
  if (std::ranges::find(kPlainFormats, tag) == kPlainFormats.end()) {
    throw_bad(name,
              offset,
              fmt::format("the samples are of format {:#06x}; integers (1), floating point (3), "
                          "A-law (6) and mu-law (7) can be read: convert the file",
                          tag));
  }
}

void append_text(std::vector<std::byte>& bytes, std::string_view text) {
  const auto raw = std::as_bytes(std::span(text));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

void append_size(std::vector<std::byte>& bytes, std::size_t size) {
  const auto number = static_cast<std::uint32_t>(size);
  const auto raw = std::as_bytes(std::span(&number, 1));
  bytes.insert(bytes.end(), raw.begin(), raw.end());
}

// Walks over the chunks of a file in order.
class Walk {
 public:
  Walk(std::span<const std::byte> file, const std::string& name) : file_(file), name_(name) {}

  WavChunks run() {
    check_beginning();
    while (file_.size() - at_ >= kChunkHeaderBytes) {
      const std::string_view kind = text_at(file_, at_);
      const auto stated = number_at<std::uint32_t>(file_, at_ + 4);
      const std::size_t n_there = file_.size() - at_ - kChunkHeaderBytes;
      if (kind == "data") {
        return at_samples(stated, n_there);
      }
      check_is_there(kind, stated, n_there);
      const auto content = file_.subspan(at_ + kChunkHeaderBytes, stated);
      if (kind == "fmt ") {
        check_format(content, name_, at_);
        format_ = content;
      }
      if (kind == "ds64" && has_64_bits_ && content.size() >= kLeastSizesBytes) {
        data_bytes_ = number_at<std::uint64_t>(content, kDataBytesAt);
      }
      // A padding byte follows a chunk of odd length.
      at_ = std::min(at_ + kChunkHeaderBytes + stated + stated % 2, file_.size());
    }
    throw_bad(name_, at_, "the file ends early: there is no chunk \"data\" with samples");
  }

 private:
  void check_beginning() {
    const bool is_wave = file_.size() >= kHeaderBytes && text_at(file_, 8) == "WAVE";
    const std::string_view kind = is_wave ? text_at(file_, 0) : "";
    has_64_bits_ = kind == "RF64" || kind == "BW64";
    if (kind != "RIFF" && !has_64_bits_) {
      check_no_placeholder(name_, file_);
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: is not a WAV file: {}",
                              name_,
                              file_.empty() ? "it is empty"
                                            : "it does not begin with RIFF, a length and WAVE"));
    }
  }

  [[nodiscard]] WavChunks at_samples(std::uint32_t stated, std::size_t n_there) const {
    if (!format_) {
      throw_bad(name_, at_, "samples come before the chunk \"fmt \" that describes them");
    }
    const bool is_streamed =
        data_bytes_ ? *data_bytes_ == 0 || *data_bytes_ == kNoSize : is_no_size(stated, n_there);
    const std::uint64_t n_bytes = is_streamed ? n_there : data_bytes_.value_or(stated);
    check_is_there("data", n_bytes, n_there);
    return {.format = *format_,
            .samples = file_.subspan(at_ + kChunkHeaderBytes, n_bytes),
            .is_streamed = is_streamed};
  }

  // A writer that cannot return to the header leaves 0 or a size near 2 or 4 GiB there: FFFFFFFF,
  // 7FFFF000. The reader accepts no files of these sizes. Samples follow a chunk of 0 bytes only if
  // the size of the whole file does not count them either.
  [[nodiscard]] bool is_no_size(std::uint32_t stated, std::size_t n_there) const {
    constexpr std::uint32_t kLeast = 0x7FFFF000;
    const auto whole = number_at<std::uint32_t>(file_, 4);
    const bool counts_rest = whole < kLeast && whole > at_;
    return stated > n_there ? stated >= kLeast : stated == 0 && n_there > 0 && !counts_rest;
  }

  void check_is_there(std::string_view kind, std::uint64_t n_bytes, std::size_t n_there) const {
    if (n_bytes > n_there) {
      throw_bad(name_,
                at_,
                fmt::format("the file ends early: {} of {} bytes of the chunk \"{}\" are there",
                            n_there,
                            n_bytes,
                            escape_text(kind)));
    }
  }

  static constexpr std::size_t kHeaderBytes = 12;
  // Offset in the chunk "ds64", after the size of the whole file.
  static constexpr std::size_t kDataBytesAt = 8;
  static constexpr std::size_t kLeastSizesBytes = 16;
  static constexpr std::uint64_t kNoSize = ~std::uint64_t{0};

  std::span<const std::byte> file_;
  const std::string& name_;
  std::size_t at_ = kHeaderBytes;
  bool has_64_bits_ = false;
  std::optional<std::uint64_t> data_bytes_;
  std::optional<std::span<const std::byte>> format_;
};

// Finds the chunks of a WAV file (RIFF, RF64 or BW64) up to the samples. All stated samples must
// exist unless the header states no size.
//
// libsndfile accepts truncated files and many formats. This function names missing parts, and
// accepts only plain formats. Throws Error(kCorruptData), with the offset.
WavChunks find_wav_chunks(std::span<const std::byte> file, const std::string& name) {
  return Walk(file, name).run();
}

// Header of a plain WAV file of these chunks, up to the samples, which take at most 1 GiB.
std::vector<std::byte> plain_wav_header(const WavChunks& chunks) {
  const std::size_t n_format = chunks.format.size() + chunks.format.size() % 2;
  std::vector<std::byte> header;
  append_text(header, "RIFF");
  append_size(header, 4 + 2 * kChunkHeaderBytes + n_format + chunks.samples.size());
  append_text(header, "WAVEfmt ");
  append_size(header, chunks.format.size());
  header.insert(header.end(), chunks.format.begin(), chunks.format.end());
  header.resize(header.size() + n_format - chunks.format.size());
  append_text(header, "data");
  append_size(header, chunks.samples.size());
  return header;
}

constexpr std::uint64_t kMaxWavBytes = std::uint64_t{1} << 30;

// A file in memory for libsndfile: a header, then the samples.
struct MemoryStream {
  std::span<const std::byte> header;
  std::span<const std::byte> samples;
  sf_count_t position = 0;

  [[nodiscard]] sf_count_t n_bytes() const {
    return static_cast<sf_count_t>(header.size() + samples.size());
  }

  static MemoryStream& of(void* stream) { return *static_cast<MemoryStream*>(stream); }

  static sf_count_t length(void* stream) { return of(stream).n_bytes(); }

  static sf_count_t tell(void* stream) { return of(stream).position; }

  static sf_count_t seek(sf_count_t offset, int from, void* stream) {
    MemoryStream& self = of(stream);
    const sf_count_t start =
        from == SEEK_SET ? 0 : (from == SEEK_CUR ? self.position : self.n_bytes());
    if (offset < -start || offset > self.n_bytes() - start) {
      return -1;
    }
    self.position = start + offset;
    return self.position;
  }

  static sf_count_t read(void* into, sf_count_t n_bytes, void* stream) {
    MemoryStream& self = of(stream);
    const auto position = static_cast<std::size_t>(self.position);
    const auto n_most = static_cast<std::size_t>(std::max<sf_count_t>(n_bytes, 0));
    const std::size_t n_header = std::min(self.header.size(), position);
    const auto from_header =
        self.header.subspan(n_header).first(std::min(n_most, self.header.size() - n_header));
    const std::size_t n_samples = std::max(self.header.size(), position) - self.header.size();
    const auto from_samples = self.samples.subspan(n_samples).first(
        std::min(n_most - from_header.size(), self.samples.size() - n_samples));
    auto* const place = static_cast<std::byte*>(into);
    std::ranges::copy(from_header, place);
    std::ranges::copy(from_samples, place + from_header.size());
    const auto n_read = static_cast<sf_count_t>(from_header.size() + from_samples.size());
    self.position += n_read;
    return n_read;
  }

  static sf_count_t write(const void*, sf_count_t, void*) { return 0; }
};

struct CloseSound {
  void operator()(SNDFILE* sound) const { ::sf_close(sound); }
};

[[noreturn]] void throw_bad(const std::string& name, const std::string& problem) {
  throw Error(ErrorCode::kCorruptData, fmt::format("{}: {}", name, problem));
}

void check_file_bytes(std::uint64_t n_bytes, const std::string& name) {
  if (n_bytes > kMaxWavBytes) {
    throw_bad(name, fmt::format("has {} bytes; up to {} are read", n_bytes, kMaxWavBytes));
  }
}

void check_sound(const SF_INFO& info, const std::string& name, std::int64_t sample_rate) {
  if (info.channels != 1) {
    throw_bad(name, fmt::format("has {} channels; it must have one", info.channels));
  }
  if (sample_rate != 0 && info.samplerate != sample_rate) {
    throw_bad(
        name,
        fmt::format(
            "has {} samples a second; {} are expected: convert it", info.samplerate, sample_rate));
  }
  if (info.frames < 1) {
    throw_bad(name, "has no samples");
  }
}

}  // namespace

Sound decode_wav(std::span<const std::byte> file,
                 const std::string& name,
                 std::int64_t sample_rate) {
  if (sample_rate < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("decode_wav: a sample rate of {}; it must be above 0, or 0 for any",
                            sample_rate));
  }
  check_file_bytes(file.size(), name);
  const WavChunks chunks = find_wav_chunks(file, name);
  const std::vector<std::byte> header = plain_wav_header(chunks);
  MemoryStream stream{.header = header, .samples = chunks.samples};
  SF_VIRTUAL_IO functions{.get_filelen = MemoryStream::length,
                          .seek = MemoryStream::seek,
                          .read = MemoryStream::read,
                          .write = MemoryStream::write,
                          .tell = MemoryStream::tell};
  SF_INFO info{};
  const std::unique_ptr<SNDFILE, CloseSound> opened(
      ::sf_open_virtual(&functions, SFM_READ, &info, &stream));
  // libsndfile keeps the cause in a variable that all threads write.
  if (opened == nullptr) {
    throw_bad(name, "its header contradicts itself: libsndfile does not take it");
  }
  check_sound(info, name, sample_rate);
  // A sample has at least one byte.
  const sf_count_t n_samples = std::min(info.frames, stream.n_bytes());
  Sound sound{.sample_rate = info.samplerate,
              .samples = std::vector<float>(static_cast<std::size_t>(n_samples)),
              .is_streamed = chunks.is_streamed};
  const sf_count_t n_read = ::sf_readf_float(opened.get(), sound.samples.data(), n_samples);
  if (n_read < info.frames) {
    throw_bad(name, fmt::format("ends early: {} of {} samples are there", n_read, info.frames));
  }
  const auto bad =
      std::ranges::find_if_not(sound.samples, [](float value) { return std::isfinite(value); });
  if (bad != sound.samples.end()) {
    throw_bad(name,
              fmt::format("sample {} is infinite or not a number", bad - sound.samples.begin()));
  }
  return sound;
}

Sound read_wav(const std::string& path, std::int64_t sample_rate) {
  RegularFile file(path);
  check_file_bytes(file.n_bytes(), path);
  std::vector<std::byte> bytes(file.n_bytes());
  bytes.resize(file.read(bytes));
  return decode_wav(bytes, path, sample_rate);
}

}  // namespace unisono::datasets
