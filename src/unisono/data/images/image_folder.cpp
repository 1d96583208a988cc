#include "unisono/data/images/image_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/data/images/decode_image.h"
#include "unisono/data/normalized_images.h"
#include "unisono/data/readers/data_folder.h"
#include "unisono/data/transforms/image_crops.h"
#include "unisono/data/transforms/image_resize.h"
#include "unisono/data/transforms/normalize.h"

namespace unisono {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHint = "give a folder that has a folder of images for each class";

bool ends_with_one_of(const std::string& name, std::span<const std::string_view> suffixes) {
  std::string lower = name;
  std::ranges::transform(lower, lower.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  return std::ranges::any_of(suffixes,
                             [&](std::string_view suffix) { return lower.ends_with(suffix); });
}

bool is_readable_image(const std::string& name) {
  constexpr std::array<std::string_view, 3> kSuffixes{".jpg", ".jpeg", ".png"};
  return ends_with_one_of(name, kSuffixes);
}

bool is_other_image(const std::string& name) {
  constexpr std::array<std::string_view, 6> kSuffixes{
      ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"};
  return ends_with_one_of(name, kSuffixes);
}

struct FolderEntries {
  std::vector<std::string> folders;
  std::vector<std::string> others;
};

// By name, links followed.
FolderEntries entries_of(const fs::path& folder) {
  FolderEntries entries;
  std::error_code reason;
  fs::directory_iterator place(folder, reason);
  while (!reason && place != fs::directory_iterator()) {
    std::error_code dangling;
    (place->is_directory(dangling) ? entries.folders : entries.others)
        .push_back(place->path().filename().string());
    place.increment(reason);
  }
  if (reason) {
    throw system_error(fmt::format("data folder \"{}\": can't list its files", folder.string()),
                       reason.value());
  }
  std::ranges::sort(entries.folders);
  std::ranges::sort(entries.others);
  return entries;
}

void check_for_circle(const fs::path& folder, std::span<const fs::path> above) {
  for (const fs::path& other : above) {
    std::error_code reason;
    if (fs::equivalent(folder, other, reason)) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("data folder \"{}\": is a link that leads back to {}",
                              folder.string(),
                              other.string()));
    }
  }
}

// Pairs of folder and name, within `root`, of the images in a folder and those below it. `above`
// are the folders from root to this one.
using FolderAndName = std::pair<std::string, std::string>;

void append_images(const fs::path& root,
                   const std::string& folder,
                   std::vector<fs::path>& above,
                   std::vector<FolderAndName>& images) {
  const fs::path path = root / folder;
  check_for_circle(path, above);
  FolderEntries entries = entries_of(path);
  for (std::string& name : entries.others) {
    if (is_other_image(name)) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: only JPEG and PNG images can be read: convert it, or move it "
                              "away",
                              (path / name).string()));
    }
    if (is_readable_image(name)) {
      images.emplace_back(folder, std::move(name));
    }
  }
  above.push_back(path);
  for (const std::string& name : entries.folders) {
    append_images(root, fmt::format("{}/{}", folder, name), above, images);
  }
  above.pop_back();
}

void check_channels(std::int64_t channels) {
  if (channels != 1 && channels != 3) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("ImageFolder: {} channels; there can be 1 (gray) or 3 (RGB)", channels));
  }
}

std::vector<Normalize> for_each_channel(std::int64_t channels, const Normalize& normalize) {
  check_channels(channels);
  return {static_cast<std::size_t>(channels), normalize};
}

}  // namespace

ImageFolder::Listing ImageFolder::list(const std::string& folder) {
  data::check_data_folder(folder, kHint);
  Listing listing{.classes = entries_of(folder).folders, .files = {}};
  if (listing.classes.empty()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("data folder \"{}\": has no folders in it; {}", folder, kHint));
  }
  for (std::size_t label = 0; label < listing.classes.size(); ++label) {
    std::vector<fs::path> above{folder};
    std::vector<FolderAndName> images;
    append_images(folder, listing.classes[label], above, images);
    if (images.empty()) {
      throw Error(ErrorCode::kNotFound,
                  fmt::format("data folder \"{}\": class \"{}\" has no images (*.jpg, *.jpeg, "
                              "*.png) in its folder",
                              folder,
                              listing.classes[label]));
    }
    std::ranges::sort(images);
    for (const auto& [inner, name] : images) {
      listing.files.push_back(
          {.path = fmt::format("{}/{}", inner, name), .label = static_cast<std::int64_t>(label)});
    }
  }
  return listing;
}

ImageShape ImageFolder::shape_of(const std::string& folder,
                                 const Listing& listing,
                                 const ImageFolderOptions& options) {
  check_channels(options.channels);
  if (options.height == 0 && options.width == 0) {
    return read_image(fs::path(folder) / listing.files.front().path,
                      {.channels = options.channels, .max_pixels = options.max_pixels})
        .shape;
  }
  constexpr std::int64_t kMaxSide = 65536;
  if (std::min(options.height, options.width) < 1 ||
      std::max(options.height, options.width) > kMaxSide) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("ImageFolder: height {}, width {}; 1 to {} are possible, or 0 for both: "
                    "those of the first image",
                    options.height,
                    options.width,
                    kMaxSide));
  }
  return {.channels = options.channels, .height = options.height, .width = options.width};
}

ImageFolder::ImageFolder(const std::string& folder,
                         const Normalize& normalize,
                         const ImageFolderOptions& options)
    : ImageFolder(folder, for_each_channel(options.channels, normalize), options) {}

ImageFolder::ImageFolder(const std::string& folder,
                         std::vector<Normalize> normalize,
                         const ImageFolderOptions& options)
    : ImageFolder(folder, std::move(normalize), options, list(folder)) {}

ImageFolder::ImageFolder(const std::string& folder,
                         std::vector<Normalize> normalize,
                         const ImageFolderOptions& options,
                         Listing listing)
    : NormalizedImages("ImageFolder", shape_of(folder, listing, options), std::move(normalize)),
      folder_(folder),
      options_(options),
      classes_(std::move(listing.classes)),
      files_(std::move(listing.files)) {}

std::string ImageFolder::path(std::int64_t index) const {
  return (fs::path(folder_) / files_[static_cast<std::size_t>(index)].path).string();
}

std::int64_t ImageFolder::load_pixels(std::int64_t index, std::span<std::byte> into) const {
  const std::string where = path(index);
  DecodedImage image =
      read_image(where, {.channels = options_.channels, .max_pixels = options_.max_pixels});
  if (image.shape.height != shape().height || image.shape.width != shape().width) {
    if (options_.fit == ImageFit::kExact) {
      throw Error(
          ErrorCode::kCorruptData,
          fmt::format("{}: an image of {} x {} pixels (height x width) among images of {} x "
                      "{}; ImageFit::kCover would resize it",
                      where,
                      image.shape.height,
                      image.shape.width,
                      shape().height,
                      shape().width));
    }
    try {
      image.pixels = cover_with_image(image.shape, image.pixels, shape().height, shape().width);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", where, error.what()));
    }
  }
  std::ranges::copy(image.pixels, into.begin());
  return files_[static_cast<std::size_t>(index)].label;
}

}  // namespace unisono
