#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "unisono/datasets/decode_image.h"
#include "unisono/datasets/image_dataset.h"
#include "unisono/datasets/transforms.h"

namespace unisono::datasets {

/// Treatment of an image of another size than the size of the data set.
enum class ImageFit {
  kExact,  ///< The image is an error.
  kCover   ///< cover_with_image() resizes and crops the image.
};

/// Form of the images of an ImageFolder.
struct ImageFolderOptions {
  /// 3: red, green, blue; 1: gray.
  std::int64_t channels = 3;
  /// Size of all images; 0: the size of the first image.
  std::int64_t height = 0;
  std::int64_t width = 0;
  /// Treatment of an image of another size.
  ImageFit fit = ImageFit::kExact;
  /// Limit of DecodeOptions.
  std::int64_t max_pixels = DecodeOptions().max_pixels;
};

/// JPEG and PNG images in a folder per class. load() decodes and normalizes an image: float32 of
/// shape {channels, height, width}. Thread-safe.
///
/// Classes and images have the order of torchvision's ImageFolder, the same on every machine.
/// Labels number the classes by name. A class contains the files *.jpg, *.jpeg and *.png of its
/// folder and the folders below, ordered by folder and name. Images of other formats that
/// torchvision reads, such as *.bmp and *.webp, are an error. Other files, and files that systems
/// and tools leave behind (.ipynb_checkpoints, ._1.png, __MACOSX, ...), are skipped; one line of
/// the log counts them.
///
/// A folder that contains only a folder of the same name stands for the inner folder: an archive
/// that was unpacked into a folder of its name has this form.
class ImageFolder final : public NormalizedImages {
 public:
  /// Lists the files, and reads the first image if the options have no size.
  ///
  /// Throws Error: kNotFound for a missing folder, a folder without classes, and a class without
  /// images; kSystem for an unreadable folder; kInvalidArgument for impossible options, links to a
  /// parent folder, images of other formats, and a folder of folders with the name of the data
  /// folder beside other classes; the errors of read_image().
  ImageFolder(const std::string& folder,
              const Normalize& normalize,
              const ImageFolderOptions& options = {});

  /// Uses a Normalize for each channel. Throws Error(kInvalidArgument) as above, and for another
  /// number of elements.
  ImageFolder(const std::string& folder,
              std::vector<Normalize> normalize,
              const ImageFolderOptions& options = {});

  [[nodiscard]] std::int64_t size() const override {
    return static_cast<std::int64_t>(files_.size());
  }

  /// Throws Error as read_image(), and kCorruptData for an image of another size.
  [[nodiscard]] std::int64_t load_pixels(std::int64_t index,
                                         std::span<std::byte> into) const override;

  /// Names of the classes. A label is an index of this list.
  [[nodiscard]] const std::vector<std::string>& classes() const { return classes_; }

  /// Path of image `index`, 0 <= index < size().
  [[nodiscard]] std::string path(std::int64_t index) const;

 private:
  struct File {
    std::string path;  // below the folder
    std::int64_t label;
  };

  struct Listing {
    std::string folder;
    std::vector<std::string> classes;
    std::vector<File> files;
  };

  static Listing list(const std::string& given);
  static ImageShape shape_of(const Listing& listing, const ImageFolderOptions& options);

  ImageFolder(std::vector<Normalize> normalize, const ImageFolderOptions& options, Listing listing);

  std::string folder_;
  ImageFolderOptions options_;
  std::vector<std::string> classes_;
  std::vector<File> files_;
};

}  // namespace unisono::datasets
