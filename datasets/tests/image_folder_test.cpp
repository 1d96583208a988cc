#include "unisono/datasets/image_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/data/batch.h"
#include "unisono/data/data_loader.h"
#include "unisono/data/samplers/distributed_sampler.h"
#include "unisono/datasets/image_dataset.h"
#include "unisono/datasets/transforms.h"

#include "support/temporary_folder.h"
#include "support/throws_error.h"
#include "tests/test_files.h"

namespace unisono::datasets {
namespace {

namespace fs = std::filesystem;
using test::CaughtError;
using test::error_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::png_bytes;
using testing::some_bytes;

std::string png_of_size(std::uint32_t height, std::uint32_t width) {
  return png_bytes(
      {.width = width, .height = height, .pixels = some_bytes(std::size_t{3} * height * width)});
}

// An image of one color.
std::string plain_png(char value, std::uint32_t side = 4) {
  return png_bytes(
      {.width = side, .height = side, .pixels = std::string(std::size_t{3} * side * side, value)});
}

std::vector<std::string> paths_of(const ImageFolder& images) {
  std::vector<std::string> paths;
  for (std::int64_t index = 0; index < images.size(); ++index) {
    paths.push_back(images.path(index));
  }
  return paths;
}

class ImageFolders : public ::testing::Test {
 protected:
  [[nodiscard]] ImageFolder open(const ImageFolderOptions& options = {}) const {
    return {files_.path(), Normalize(0, 1), options};
  }

  [[nodiscard]] CaughtError error_of_opening(const ImageFolderOptions& options = {}) const {
    return error_of([&] { (void)open(options); });
  }

  [[nodiscard]] CaughtError error_of_loading(const ImageFolder& images, std::int64_t index) const {
    std::vector<std::byte> pixels(static_cast<std::size_t>(images.shape().n_pixels()));
    return error_of([&] { (void)images.load_pixels(index, pixels); });
  }

  test::TemporaryFolder files_;
};

TEST_F(ImageFolders, ListTheirImagesInTheOrderOfTorchvision) {
  for (const std::string name : {"b/2.png",
                                 "b/10.PNG",
                                 "b/x/1.jpeg",
                                 "b/x-y/1.Jpg",
                                 "b/x/z/1.png",
                                 "b/notes.txt",
                                 "b/png",
                                 "B/1.png",
                                 "_/deep/er/1.png",
                                 "beside.png"}) {
    (void)files_.write(name, plain_png(1));
  }
  const ImageFolder images = open();
  EXPECT_THAT(images.classes(), ElementsAre("B", "_", "b"));
  const std::string root = files_.path() + "/";
  // Order of bytes: capitals, "_", small letters; "-" before "/", so "b/x", "b/x-y", "b/x/z".
  EXPECT_THAT(paths_of(images),
              ElementsAre(root + "B/1.png",
                          root + "_/deep/er/1.png",
                          root + "b/10.PNG",
                          root + "b/2.png",
                          root + "b/x/1.jpeg",
                          root + "b/x-y/1.Jpg",
                          root + "b/x/z/1.png"));
  std::vector<std::byte> pixels(48);
  EXPECT_EQ(images.load_pixels(0, pixels), 0);
  EXPECT_EQ(images.load_pixels(1, pixels), 1);
  EXPECT_EQ(images.load_pixels(5, pixels), 2);
}

TEST_F(ImageFolders, LeaveOutWhatSystemsAndToolsLeaveBehind) {
  for (const std::string name : {"cat/1.png", "cat/old/2.png", "dog/1.png"}) {
    (void)files_.write(name, plain_png(1));
  }
  const std::vector<std::string> expected = paths_of(open());
  ASSERT_EQ(expected.size(), 3U);
  for (const std::string name : {".DS_Store",
                                 ".git/config",
                                 ".ipynb_checkpoints/1-checkpoint.png",
                                 "@eaDir/thumb.png",
                                 "__MACOSX/cat/._1.png",
                                 "System Volume Information/1.png",
                                 "cat/._1.png",
                                 "cat/._1.webp",
                                 "cat/.ipynb_checkpoints/1-checkpoint.png",
                                 "cat/@eaDir/1.png/SYNOPHOTO_THUMB_M.png",
                                 "cat/old/Thumbs.db",
                                 "cat/old/notes.txt",
                                 "dog/desktop.ini",
                                 "labels.csv"}) {
    (void)files_.write(name, "no image");
  }
  ::testing::internal::CaptureStderr();
  const ImageFolder images = open();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(images.classes(), ElementsAre("cat", "dog"));
  EXPECT_EQ(paths_of(images), expected);
  EXPECT_THAT(log, HasSubstr("\": entries left out: 12 of systems and tools ("));
  EXPECT_THAT(log, HasSubstr("), 2 of other types (labels.csv, cat/old/notes.txt)\n"));
  EXPECT_EQ(std::ranges::count(log, '\n'), 1);
}

TEST_F(ImageFolders, ReadAFolderThatWasUnpackedInAFolderOfItsName) {
  for (const std::string name : {"train/train/cat/1.png", "train/train/dog/1.png"}) {
    (void)files_.write(name, plain_png(1));
  }
  (void)files_.write("train/__MACOSX/train/._cat", "");
  const std::string train = files_.path() + "/train";
  for (const std::string& folder : {train, train + "/", train + "/train", train + "/../train/."}) {
    const ImageFolder images(folder, Normalize(0, 1));
    EXPECT_THAT(images.classes(), ElementsAre("cat", "dog")) << folder;
    EXPECT_EQ(images.size(), 2) << folder;
  }
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(open().classes(), ElementsAre("train"));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("warning: data folder"), HasSubstr("give the folder \"" + train)));

  (void)files_.write("train/cat/1.png", plain_png(1));
  const CaughtError twice = error_of([&] { (void)ImageFolder(train, Normalize(0, 1)); });
  EXPECT_EQ(twice.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(twice.message, HasSubstr("an archive was unpacked twice"));

  (void)files_.write("cat/cat/1.png", plain_png(1));
  (void)files_.write("cat/cat/old/1.png", plain_png(1));
  EXPECT_THAT(ImageFolder(files_.path() + "/cat", Normalize(0, 1)).classes(), ElementsAre("cat"));
}

TEST_F(ImageFolders, LoadNormalizedPixels) {
  (void)files_.write("a/1.png", plain_png('\x33'));
  (void)files_.write("b/1.png", plain_png('\xFF'));
  const ImageFolder images(files_.path(), {Normalize(0, 1), Normalize(0, 0.5), Normalize(0.5, 1)});
  EXPECT_EQ(images.size(), 2);
  EXPECT_THAT(images.sample_shape(), ElementsAre(3, 4, 4));
  std::vector<float> sample(48);
  EXPECT_EQ(images.load(1, std::as_writable_bytes(std::span(sample))), 1);
  EXPECT_THAT((std::vector{sample[0], sample[15], sample[16], sample[32]}),
              ElementsAre(1.0F, 1.0F, 2.0F, 0.5F));
  EXPECT_EQ(images.load(0, std::as_writable_bytes(std::span(sample))), 0);
  EXPECT_FLOAT_EQ(sample[0], 0.2F);

  const ImageFolder gray = open({.channels = 1});
  EXPECT_THAT(gray.sample_shape(), ElementsAre(1, 4, 4));
  EXPECT_EQ(gray.load(0, std::as_writable_bytes(std::span(sample).first(16))), 0);
  EXPECT_FLOAT_EQ(sample[15], 0.2F);
}

TEST_F(ImageFolders, NameAnImageOfAnotherSize) {
  (void)files_.write("a/1.png", png_of_size(4, 5));
  (void)files_.write("a/2.png", png_of_size(5, 4));
  const ImageFolder images = open();
  EXPECT_EQ(error_of_loading(images, 0).message, "(nothing was thrown)");
  const CaughtError error = error_of_loading(images, 1);
  EXPECT_EQ(error.code, ErrorCode::kCorruptData);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("a/2.png: an image of 5 x 4 pixels (height x width) among images of "
                              "4 x 5"),
                    HasSubstr("ImageFit::kCover")));
  EXPECT_THAT(error_of_loading(open({.height = 5, .width = 4}), 0).message, HasSubstr("a/1.png"));
}

TEST_F(ImageFolders, ResizeToCover) {
  (void)files_.write("a/1.png", plain_png('\x21', 9));
  (void)files_.write("a/2.png", png_of_size(12, 8));
  const ImageFolder images = open({.height = 6, .width = 3, .fit = ImageFit::kCover});
  std::vector<std::byte> pixels(54);
  EXPECT_EQ(images.load_pixels(0, pixels), 0);
  EXPECT_THAT(pixels, ::testing::Each(std::byte{0x21}));
  EXPECT_EQ(images.load_pixels(1, pixels), 0);
  EXPECT_THAT(pixels, ::testing::Contains(::testing::Ne(std::byte{0x21})));

  (void)files_.write("a/3.png", png_of_size(1, 20000));
  EXPECT_THAT(error_of_loading(open({.height = 6, .width = 3, .fit = ImageFit::kCover}), 2).message,
              AllOf(HasSubstr("a/3.png: "), HasSubstr("to 6 x 120000 pixels")));
}

TEST_F(ImageFolders, GiveTheSameToAnyNumberOfWorkers) {
  for (int number = 0; number < 30; ++number) {
    (void)files_.write(
        std::string(1, static_cast<char>('a' + number % 3)) + "/" + std::to_string(number) + ".png",
        png_bytes({.width = 8,
                   .height = 8,
                   .pixels = some_bytes(192 + static_cast<std::size_t>(number))
                                 .substr(static_cast<std::size_t>(number))}));
  }
  const auto load_all = [&](int num_workers, std::int64_t epoch) {
    const auto augmented = std::make_shared<AugmentedImages>(
        std::make_shared<ImageFolder>(files_.path(), Normalize(0.5, 0.5)),
        AugmentationOptions{.crop_padding = 2});
    augmented->set_epoch(epoch);
    DistributedSampler sampler(augmented->size(), 1, 0);
    DataLoader loader(augmented, {.batch_size = 7, .num_workers = num_workers});
    loader.start(sampler);
    std::vector<float> values;
    while (const std::optional<data::Batch> batch = loader.next()) {
      values.insert(values.end(), batch->values<float>().begin(), batch->values<float>().end());
      values.insert(values.end(), batch->labels().begin(), batch->labels().end());
    }
    return values;
  };
  const std::vector<float> expected = load_all(0, 0);
  EXPECT_EQ(expected.size(), std::size_t{30} * (192 + 1));
  EXPECT_EQ(load_all(1, 0), expected);
  EXPECT_EQ(load_all(4, 0), expected);
  EXPECT_NE(load_all(4, 1), expected);
}

TEST_F(ImageFolders, ADamagedImageReachesWhoAskedForItsBatch) {
  (void)files_.write("a/1.png", plain_png(1));
  (void)files_.write("a/2.png", plain_png(1).substr(0, 60));
  DistributedSampler sampler(2, 1, 0, {.shuffle = false});
  DataLoader loader(std::make_shared<ImageFolder>(files_.path(), Normalize(0, 1)),
                    {.batch_size = 1, .num_workers = 2});
  loader.start(sampler);
  EXPECT_TRUE(loader.next().has_value());
  EXPECT_THAT(error_of([&] { (void)loader.next(); }).message,
              AllOf(HasSubstr("a/2.png: the PNG image can't be decoded"), HasSubstr("ends early")));
}

TEST_F(ImageFolders, WithoutImagesAreErrors) {
  const CaughtError missing =
      error_of([] { (void)ImageFolder("/nowhere/at/all", Normalize(0, 1)); });
  EXPECT_EQ(missing.code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.message, HasSubstr("\"/nowhere/at/all\": there is no such folder"));

  (void)files_.write("beside.png", plain_png(1));
  EXPECT_EQ(error_of_opening().code, ErrorCode::kNotFound);
  EXPECT_THAT(error_of_opening().message, HasSubstr("has no folders in it"));

  (void)files_.write("cat/1.png", plain_png(1));
  (void)files_.write("dog/notes.txt", "");
  EXPECT_EQ(error_of_opening().code, ErrorCode::kNotFound);
  EXPECT_THAT(error_of_opening().message, HasSubstr("class \"dog\" has no images"));
}

TEST_F(ImageFolders, FilesThatAreNoImagesAreNamed) {
  const std::string path = files_.write("cat/1.jpg", "text");
  EXPECT_THAT(error_of_opening().message,
              AllOf(HasSubstr(path), HasSubstr("neither a JPEG nor a PNG image")));
  EXPECT_THAT(error_of_loading(open({.height = 4, .width = 4}), 0).message, HasSubstr(path));
  const std::string other = files_.write("cat/2.WebP", "");
  EXPECT_EQ(error_of_opening().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error_of_opening().message,
              AllOf(HasSubstr(other), HasSubstr("only JPEG and PNG images can be read")));
}

TEST_F(ImageFolders, FollowLinksButNotInCircles) {
  (void)files_.write("cat/1.png", plain_png(1));
  (void)files_.write("cat/old/2.png", plain_png(1));
  fs::create_directory_symlink(files_.path() + "/cat/old", files_.path() + "/dog");
  EXPECT_EQ(open().size(), 3);

  fs::create_directory_symlink(files_.path() + "/cat", files_.path() + "/cat/old/back");
  const CaughtError error = error_of_opening();
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("cat/old/back\": is a link that leads back to"));
}

TEST_F(ImageFolders, AFileThatIsGoneSinceIsNamed) {
  const std::string path = files_.write("cat/1.png", plain_png(1));
  const ImageFolder images = open();
  fs::remove(path);
  EXPECT_EQ(error_of_loading(images, 0).code, ErrorCode::kNotFound);
  EXPECT_THAT(error_of_loading(images, 0).message, HasSubstr(path));
}

TEST_F(ImageFolders, ThatCantBeReadAreNamed) {
  if (::geteuid() == 0) {
    GTEST_SKIP() << "root may read every folder";
  }
  (void)files_.write("cat/1.png", plain_png(1));
  fs::permissions(files_.path() + "/cat", fs::perms::none);
  const CaughtError error = error_of_opening();
  fs::permissions(files_.path() + "/cat", fs::perms::owner_all);
  EXPECT_EQ(error.code, ErrorCode::kSystem);
  EXPECT_THAT(error.message, HasSubstr("cat\": can't list its files: Permission denied"));
}

TEST_F(ImageFolders, ExplainImpossibleOptions) {
  (void)files_.write("cat/1.png", plain_png(1));
  EXPECT_THAT(error_of_opening({.channels = 4}).message, HasSubstr("4 channels"));
  for (const ImageFolderOptions options : {ImageFolderOptions{.height = 4},
                                           {.height = -1, .width = 4},
                                           {.height = 4, .width = 70000}}) {
    EXPECT_EQ(error_of_opening(options).code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(error_of_opening(options).message, HasSubstr("1 to 65536 are possible"));
  }
  EXPECT_THAT(
      error_of([&] { (void)ImageFolder(files_.path(), std::vector{Normalize(0, 1)}); }).message,
      HasSubstr("ImageFolder: a Normalize for 1 channels, but the images have 3"));
}

}  // namespace
}  // namespace unisono::datasets
