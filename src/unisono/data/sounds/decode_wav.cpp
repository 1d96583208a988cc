#include "unisono/data/sounds/decode_wav.h"

#include <fmt/format.h>
#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/regular_file.h"
#include "unisono/data/sounds/wav_header.h"

namespace unisono {
namespace {

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 30;

// A file for libsndfile: a header, and the samples behind it.
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
  if (n_bytes > kMaxFileBytes) {
    throw_bad(name, fmt::format("has {} bytes; up to {} are read", n_bytes, kMaxFileBytes));
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
  const data::WavChunks chunks = data::find_wav_chunks(file, name);
  const std::vector<std::byte> header = data::plain_wav_header(chunks);
  MemoryStream stream{.header = header, .samples = chunks.samples};
  SF_VIRTUAL_IO functions{.get_filelen = MemoryStream::length,
                          .seek = MemoryStream::seek,
                          .read = MemoryStream::read,
                          .write = MemoryStream::write,
                          .tell = MemoryStream::tell};
  SF_INFO info{};
  const std::unique_ptr<SNDFILE, CloseSound> opened(
      ::sf_open_virtual(&functions, SFM_READ, &info, &stream));
  // Why is in a variable that all of libsndfile's threads write.
  if (opened == nullptr) {
    throw_bad(name, "its header contradicts itself: libsndfile does not take it");
  }
  check_sound(info, name, sample_rate);
  // A sample takes at least a byte.
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
    throw_bad(name, fmt::format("sample {} is infinite or no number", bad - sound.samples.begin()));
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

}  // namespace unisono
