#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "unisono/base/error.h"

namespace unisono::fuzz {

using Bytes = std::vector<std::byte>;

inline Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline Bytes join(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& part : parts) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

/// The folder of seeds of one target.
class Corpus {
 public:
  Corpus(const std::filesystem::path& root, const char* target) : folder_(root / target) {
    std::filesystem::create_directories(folder_);
  }

  void add(const char* name, const Bytes& bytes) const {
    std::ofstream file(folder_ / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    UNISONO_CHECK(file.flush().good(), (folder_ / name).string() + " can't be written");
  }

 private:
  std::filesystem::path folder_;
};

/// Writes the seeds for readers of data files: data_seeds.cpp.
void write_data(const std::filesystem::path& root);

/// Writes the seeds for readers of images and sounds: media_seeds.cpp.
void write_media(const std::filesystem::path& root);

/// Writes the seeds for readers of checkpoints: checkpoint_seeds.cpp.
void write_checkpoints(const std::filesystem::path& root);

/// Write the seeds of pipeline/: pipeline_seeds.cpp.
void write_schedules(const std::filesystem::path& root);
void write_pipeline_messages(const std::filesystem::path& root);

}  // namespace unisono::fuzz
