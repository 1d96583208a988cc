#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "unisono/data/images/decode_image.h"
#include "unisono/data/normalized_images.h"
#include "unisono/data/transforms/normalize.h"

namespace unisono {

/// What becomes of an image that has not the data set's height and width.
enum class ImageFit {
  kExact,  ///< It is an error.
  kCover   ///< cover_with_image(): resized, and what stands over at the sides cut off.
};

struct ImageFolderOptions {
  /// 3: red, green, blue; 1: gray.
  std::int64_t channels = 3;
  /// Of all images; 0: those of the first one.
  std::int64_t height = 0;
  std::int64_t width = 0;
  ImageFit fit = ImageFit::kExact;
  /// As DecodeOptions has it.
  std::int64_t max_pixels = DecodeOptions().max_pixels;
};

/// The JPEG and PNG images of a folder that has a folder for each class, decoded as they are
/// loaded; as samples float32 of shape {channels, height, width}, normalized.
///
/// Classes and images are in the order of torchvision's ImageFolder, on every machine the same:
/// labels count the classes by name; a class has the files *.jpg, *.jpeg and *.png in its folder
/// and in those below, by folder and name. Other files are no images; but those that torchvision
/// takes and this can't read (*.bmp, *.webp, ...) are an error.
class ImageFolder final : public NormalizedImages {
 public:
  /// Lists the files, and reads the first one where the options have no size.
  ///
  /// Throws Error: kNotFound where there is no folder, no class, or no image in one; kSystem for a
  /// folder that can't be read; kInvalidArgument for impossible options, links that lead back to a
  /// folder that they are in, and images of other formats; what read_image() throws.
  ImageFolder(const std::string& folder,
              const Normalize& normalize,
              const ImageFolderOptions& options = {});

  /// With a Normalize for each channel, or it throws Error(kInvalidArgument), too.
  ImageFolder(const std::string& folder,
              std::vector<Normalize> normalize,
              const ImageFolderOptions& options = {});

  [[nodiscard]] std::int64_t size() const override {
    return static_cast<std::int64_t>(files_.size());
  }

  /// Throws Error as read_image(), and kCorruptData for an image of another size.
  [[nodiscard]] std::int64_t load_pixels(std::int64_t index,
                                         std::span<std::byte> into) const override;

  /// The classes' names; a label is a place in them.
  [[nodiscard]] const std::vector<std::string>& classes() const { return classes_; }

  /// Where image `index`, 0 <= index < size(), lies.
  [[nodiscard]] std::string path(std::int64_t index) const;

 private:
  struct File {
    std::string path;  // within the folder
    std::int64_t label;
  };

  struct Listing {
    std::vector<std::string> classes;
    std::vector<File> files;
  };

  static Listing list(const std::string& folder);
  static ImageShape shape_of(const std::string& folder,
                             const Listing& listing,
                             const ImageFolderOptions& options);

  ImageFolder(const std::string& folder,
              std::vector<Normalize> normalize,
              const ImageFolderOptions& options,
              Listing listing);

  std::string folder_;
  ImageFolderOptions options_;
  std::vector<std::string> classes_;
  std::vector<File> files_;
};

}  // namespace unisono
