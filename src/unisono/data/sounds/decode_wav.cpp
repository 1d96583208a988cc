#include "unisono/data/sounds/decode_wav.h"

#include <fmt/format.h>
#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
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

// What libsndfile reads in place of a file.
struct MemoryStream {
  std::span<const std::byte> bytes;
  sf_count_t position = 0;

  [[nodiscard]] sf_count_t n_bytes() const { return static_cast<sf_count_t>(bytes.size()); }

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
    const sf_count_t n_read = std::clamp<sf_count_t>(n_bytes, 0, self.n_bytes() - self.position);
    std::memcpy(into, self.bytes.data() + self.position, static_cast<std::size_t>(n_read));
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
  data::check_wav(file, name);
  MemoryStream stream{.bytes = file};
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
              .samples = std::vector<float>(static_cast<std::size_t>(n_samples))};
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
  if (file.n_bytes() > kMaxFileBytes) {
    throw_bad(path, fmt::format("has {} bytes; up to {} are read", file.n_bytes(), kMaxFileBytes));
  }
  std::vector<std::byte> bytes(file.n_bytes());
  bytes.resize(file.read(bytes));
  return decode_wav(bytes, path, sample_rate);
}

}  // namespace unisono
