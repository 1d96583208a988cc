#include "unisono/datasets/image_folder.h"

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
#include "unisono/base/file.h"
#include "unisono/base/log.h"
#include "unisono/datasets/data_files.h"
#include "unisono/datasets/decode_image.h"
#include "unisono/datasets/image_dataset.h"
#include "unisono/datasets/transforms.h"

namespace unisono::datasets {
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

// Folder and name of an image, below the root.
using FolderAndName = std::pair<std::string, std::string>;

// Lists the files of a folder with a folder per class.
class Lister {
 public:
  explicit Lister(fs::path root) : root_(std::move(root)) {}

  // Names of the folders, sorted.
  std::vector<std::string> classes() {
    FolderEntries entries = list_folder(root_, "", left_out_);
    for (const std::string& name : entries.others) {
      left_out_.add(name);
    }
    return std::move(entries.folders);
  }

  // Images of the folder of a class and the folders below, sorted.
  std::vector<FolderAndName> images_of(const std::string& name) {
    std::vector<fs::path> above{root_};
    std::vector<FolderAndName> images;
    append_images(name, above, images);
    std::ranges::sort(images);
    return images;
  }

  // Logs one line for all entries that were left out.
  void report() const {
    left_out_.report(base::Logger("data"), fmt::format("data folder \"{}\"", root_.string()));
  }

 private:
  // `above` has the folders from the root to this folder.
  void append_images(const std::string& folder,
                     std::vector<fs::path>& above,
                     std::vector<FolderAndName>& images) {
    const fs::path path = root_ / folder;
    check_for_circle(path, above);
    FolderEntries entries = list_folder(root_, folder, left_out_);
    for (std::string& name : entries.others) {
      if (is_other_image(name)) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("{}: only JPEG and PNG images can be read: convert it, or move it "
                                "away",
                                (path / name).string()));
      }
      if (is_readable_image(name)) {
        images.emplace_back(folder, std::move(name));
      } else {
        left_out_.add(fmt::format("{}/{}", folder, name));
      }
    }
    above.push_back(path);
    for (const std::string& name : entries.folders) {
      append_images(fmt::format("{}/{}", folder, name), above, images);
    }
    above.pop_back();
  }

  fs::path root_;
  LeftOut left_out_;
};

bool has_only_folders(const fs::path& folder) {
  LeftOut not_reported;
  const FolderEntries entries = list_folder(folder, "", not_reported);
  return !entries.folders.empty() && std::ranges::none_of(entries.others, is_readable_image);
}

// An archive train.zip with the folder train/, unpacked in train/, makes train/train/ with the
// classes. Beside other classes the inner folder is a second copy and not a class.
fs::path folder_of_classes(const fs::path& folder) {
  LeftOut not_reported;
  const std::vector<std::string> names = list_folder(folder, "", not_reported).folders;
  const fs::path whole = fs::absolute(folder / "").lexically_normal().parent_path();
  const std::string own_name = whole.filename().string();
  const bool is_only = names.size() == 1;
  const auto inner = is_only ? names.begin() : std::ranges::find(names, own_name);
  if (inner == names.end() || !has_only_folders(folder / *inner)) {
    return folder;
  }
  const std::string inner_path = (folder / *inner).string();
  if (*inner != own_name) {
    base::Logger("data").warning(
        fmt::format("data folder \"{}\": \"{}\" is its only class, and all images are in folders "
                    "below; if these are the classes, give the folder \"{}\"",
                    folder.string(),
                    *inner,
                    inner_path));
    return folder;
  }
  if (!is_only) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("data folder \"{}\": the folder \"{}\" has its name and holds only "
                            "folders, beside other classes: an archive was unpacked twice. Move "
                            "one of the two copies away",
                            folder.string(),
                            inner_path));
  }
  base::Logger("data").info(
      fmt::format("data folder \"{}\": using the classes in \"{}\"", folder.string(), inner_path));
  return inner_path;
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

ImageFolder::Listing ImageFolder::list(const std::string& given) {
  check_data_folder(given, kHint);
  const std::string folder = folder_of_classes(given).string();
  Lister lister(folder);
  Listing listing{.folder = folder, .classes = lister.classes(), .files = {}};
  if (listing.classes.empty()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("data folder \"{}\": has no folders in it; {}", folder, kHint));
  }
  for (std::size_t label = 0; label < listing.classes.size(); ++label) {
    const std::vector<FolderAndName> images = lister.images_of(listing.classes[label]);
    if (images.empty()) {
      throw Error(ErrorCode::kNotFound,
                  fmt::format("data folder \"{}\": class \"{}\" has no images (*.jpg, *.jpeg, "
                              "*.png) in its folder",
                              folder,
                              listing.classes[label]));
    }
    for (const auto& [inner, name] : images) {
      listing.files.push_back(
          {.path = fmt::format("{}/{}", inner, name), .label = static_cast<std::int64_t>(label)});
    }
  }
  lister.report();
  return listing;
}

ImageShape ImageFolder::shape_of(const Listing& listing, const ImageFolderOptions& options) {
  check_channels(options.channels);
  if (options.height == 0 && options.width == 0) {
    return read_image(fs::path(listing.folder) / listing.files.front().path,
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
    : ImageFolder(std::move(normalize), options, list(folder)) {}

ImageFolder::ImageFolder(std::vector<Normalize> normalize,
                         const ImageFolderOptions& options,
                         Listing listing)
    : NormalizedImages("ImageFolder", shape_of(listing, options), std::move(normalize)),
      folder_(std::move(listing.folder)),
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

}  // namespace unisono::datasets
