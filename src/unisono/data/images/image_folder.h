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
/// and in those below, by folder and name. Images of other formats that torchvision reads (*.bmp,
/// *.webp, ...) are an error. Other files, and what systems and tools leave behind
/// (.ipynb_checkpoints, ._1.png, __MACOSX, ...), are left out; one line of the log counts them.
///
/// A folder whose only entry is a folder of its own name, as an archive that is unpacked in a
/// folder of its name makes it, stands for that inner folder.
class ImageFolder final : public NormalizedImages {
 public:
  /// Lists the files, and reads the first one where the options have no size.
  ///
  /// Throws Error: kNotFound where there is no folder, no class, or no image in one; kSystem for a
  /// folder that can't be read; kInvalidArgument for impossible options, links that lead back to a
  /// folder that they are in, images of other formats, and a folder of folders that has the data
  /// folder's own name beside other classes; what read_image() throws.
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

}  // namespace unisono
