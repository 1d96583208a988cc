#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/datasets/idx.h"
#include "unisono/datasets/image_dataset.h"

#include "support/temporary_folder.h"
#include "support/throws_error.h"
#include "tests/test_files.h"

namespace unisono::datasets {
namespace {

using test::CaughtError;
using test::error_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::gzip;
using ::testing::HasSubstr;
using testing::idx_bytes;
using testing::some_bytes;

std::vector<std::int64_t> first_labels(const LabeledImages& images, std::int64_t count) {
  std::vector<std::int64_t> labels;
  labels.reserve(static_cast<std::size_t>(count));
  for (std::int64_t index = 0; index < count; ++index) {
    labels.push_back(images.label(index));
  }
  return labels;
}

class Mnist : public ::testing::Test {
 protected:
  // Two images of 3 x 4 for training, one for testing.
  void write_sets(const std::string& folder, const std::string& suffix) {
    const auto pack = [&](const std::string& bytes) {
      return suffix == ".gz" ? gzip(bytes) : bytes;
    };
    (void)files_.write(folder + "train-images-idx3-ubyte" + suffix,
                       pack(idx_bytes(0x08, {2, 3, 4}, some_bytes(24))));
    (void)files_.write(folder + "train-labels-idx1-ubyte" + suffix,
                       pack(idx_bytes(0x08, {2}, {9, 0})));
    (void)files_.write(folder + "t10k-images-idx3-ubyte" + suffix,
                       pack(idx_bytes(0x08, {1, 3, 4}, some_bytes(12))));
    (void)files_.write(folder + "t10k-labels-idx1-ubyte" + suffix, pack(idx_bytes(0x08, {1}, {5})));
  }

  CaughtError error_now() {
    return error_of([&] { (void)load_mnist(files_.path(), Split::kTrain); });
  }

  test::TemporaryFolder files_;
};

TEST_F(Mnist, FindsPlainAndGzipFilesHereAndWhereTorchvisionPutsThem) {
  for (const std::string folder : {"plain/", "packed/", "vision/MNIST/raw/"}) {
    write_sets(folder, folder == "packed/" ? ".gz" : "");
    const std::string given = files_.path() + "/" + folder.substr(0, folder.find('/'));

    const LabeledImages train = load_mnist(given, Split::kTrain);
    EXPECT_EQ(train.size(), 2);
    EXPECT_EQ(train.height, 3);
    EXPECT_EQ(train.width, 4);
    EXPECT_THAT(first_labels(train, 2), ElementsAre(9, 0));
    EXPECT_EQ(train.image(1)[0], std::byte{12 * 7});

    EXPECT_THAT(first_labels(load_mnist(given, Split::kTest), 1), ElementsAre(5));
  }
}

TEST_F(Mnist, OtherSpellingsAndFoldersGiveTheSameSamples) {
  write_sets("plain/", "");
  const LabeledImages expected = load_mnist(files_.path() + "/plain", Split::kTrain);
  const std::string images = idx_bytes(0x08, {2, 3, 4}, some_bytes(24));
  const std::string labels = idx_bytes(0x08, {2}, {9, 0});
  (void)files_.write("dots/train-images.idx3-ubyte", images);
  (void)files_.write("dots/train-labels.idx1-ubyte", labels);
  (void)files_.write("gzip/train-images.idx3-ubyte.gz", gzip(images));
  (void)files_.write("gzip/train-labels.idx1-ubyte.gz", gzip(labels));
  (void)files_.write("own/train-images-idx3-ubyte/train-images-idx3-ubyte", images);
  (void)files_.write("own/train-labels-idx1-ubyte/train-labels.idx1-ubyte", labels);
  (void)files_.write("own/__MACOSX/train-images-idx3-ubyte", "x");
  (void)files_.write("below/archive/train-images.idx3-ubyte", images);
  (void)files_.write("below/archive/train-labels.idx1-ubyte", labels);
  (void)files_.write("below/notes/train-images.idx3-ubyte", images);
  for (const std::string folder : {"dots", "gzip", "own", "below"}) {
    const LabeledImages found = load_mnist(files_.path() + "/" + folder, Split::kTrain);
    EXPECT_EQ(found.pixels, expected.pixels) << folder;
    EXPECT_EQ(found.labels, expected.labels) << folder;
  }
  const CaughtError error = error_now();
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("is in each of its folders dots, gzip, own, plain"));
}

TEST_F(Mnist, APointerInPlaceOfAFileIsNamed) {
  write_sets("", "");
  (void)files_.write("train-images-idx3-ubyte",
                     "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 40\n");
  EXPECT_THAT(error_now().message, HasSubstr("git lfs pull --include \"train-images-idx3-ubyte\""));
}

TEST_F(Mnist, AMissingFolderIsNamedAndHowToGetData) {
  const CaughtError error =
      error_of([&] { (void)load_mnist(files_.path() + "/nowhere", Split::kTrain); });
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("/nowhere\": there is no such folder"),
                    HasSubstr("package dataset-fashion-mnist")));
}

TEST_F(Mnist, AFileInPlaceOfTheFolderIsSaidSo) {
  const std::string path = files_.write("train-images-idx3-ubyte", "x");
  const CaughtError error = error_of([&] { (void)load_mnist(path, Split::kTrain); });
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr(path + "\": is not a folder"));
}

TEST_F(Mnist, AnEmptyFolderSaysWhatWasLookedForAndWhere) {
  const CaughtError error = error_now();
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("no training set in it"),
                    HasSubstr("train-images-idx3-ubyte and train-labels-idx1-ubyte"),
                    HasSubstr(files_.path() + "/MNIST/raw"),
                    HasSubstr("package dataset-fashion-mnist")));
  EXPECT_THAT(error_of([&] { (void)load_mnist(files_.path(), Split::kTest); }).message,
              AllOf(HasSubstr("no test set"), HasSubstr("t10k-images-idx3-ubyte")));
}

TEST_F(Mnist, HalfASetSaysWhichFileIsMissing) {
  const std::string images = files_.write("train-images-idx3-ubyte", "x");
  const CaughtError error = error_now();
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_THAT(error.message, HasSubstr(images + " is there, but not train-labels-idx1-ubyte"));
}

TEST_F(Mnist, ADamagedFileIsNamed) {
  write_sets("", "");
  const std::string path = files_.write("train-labels-idx1-ubyte", idx_bytes(0x08, {2}, "\x01"));
  EXPECT_THAT(error_now().message, HasSubstr(path + ": truncated: 9 of 10 bytes"));
}

TEST_F(Mnist, CountsMustAgree) {
  write_sets("", "");
  (void)files_.write("train-labels-idx1-ubyte", idx_bytes(0x08, {3}, {1, 2, 3}));
  const CaughtError error = error_now();
  EXPECT_EQ(error.code, ErrorCode::kCorruptData);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("train-images-idx3-ubyte has 2 images"), HasSubstr("has 3 labels")));
}

TEST_F(Mnist, LabelsAreDigits) {
  write_sets("", "");
  (void)files_.write("train-labels-idx1-ubyte", idx_bytes(0x08, {2}, {9, 10}));
  EXPECT_THAT(error_now().message,
              HasSubstr("train-labels-idx1-ubyte: label 1 of 2 is 10; labels are 0 to 9"));
}

TEST_F(Mnist, OtherShapesAndTypesAreRejected) {
  write_sets("", "");
  (void)files_.write("train-images-idx3-ubyte", idx_bytes(0x08, {2, 12}, some_bytes(24)));
  EXPECT_THAT(error_now().message, HasSubstr("holds u8[2, 12], but images are u8 with 3"));

  (void)files_.write("train-images-idx3-ubyte", idx_bytes(0x0b, {2, 3, 2}, some_bytes(24)));
  EXPECT_THAT(error_now().message, HasSubstr("holds i16[2, 3, 2]"));

  (void)files_.write("train-images-idx3-ubyte", idx_bytes(0x08, {2, 0, 4}, ""));
  EXPECT_THAT(error_now().message, HasSubstr("has no pixels: u8[2, 0, 4]"));
}

TEST(MnistSample, SyntheticDigitsAreReadPixelByPixel) {
  const LabeledImages train = load_mnist(UNISONO_SYNTHETIC_DIGITS, Split::kTrain);
  ASSERT_EQ(train.size(), 20);
  EXPECT_EQ(load_mnist(UNISONO_SYNTHETIC_DIGITS, Split::kTest).size(), 10);
  EXPECT_EQ(train.height, 28);
  EXPECT_EQ(train.width, 28);
  EXPECT_THAT(first_labels(train, 8), ElementsAre(0, 7, 4, 1, 8, 5, 2, 9));

  constexpr std::array<std::ptrdiff_t, 10> kDrawnPixels{
      171, 90, 126, 126, 126, 153, 135, 99, 153, 135};
  for (std::int64_t index = 0; index < train.size(); ++index) {
    const auto brightness = static_cast<std::byte>(255 - 5 * index);
    const auto drawn = kDrawnPixels[static_cast<std::size_t>(train.label(index))];
    EXPECT_EQ(std::ranges::count(train.image(index), brightness), drawn) << "image " << index;
    EXPECT_EQ(std::ranges::count(train.image(index), std::byte{0}), 784 - drawn);
  }
}

TEST(MnistRealFiles, FashionMnist) {
  const std::string folder = "/usr/share/datasets/fashion-mnist";
  if (!std::filesystem::exists(folder)) {
    GTEST_SKIP() << "the package dataset-fashion-mnist is not installed: no " << folder;
  }
  const LabeledImages train = load_mnist(folder, Split::kTrain);
  EXPECT_EQ(train.size(), 60'000);
  EXPECT_EQ(train.height, 28);
  EXPECT_EQ(train.width, 28);
  EXPECT_THAT(first_labels(train, 8), ElementsAre(9, 0, 0, 3, 0, 2, 7, 2));
  EXPECT_EQ(load_mnist(folder, Split::kTest).size(), 10'000);
}

TEST(MnistRealFiles, Mnist) {
  const std::string folder =
      process_environment()("UNISONO_TEST_MNIST_DIR").value_or(UNISONO_DEFAULT_MNIST_DIR);
  if (!std::filesystem::exists(folder + "/train-images-idx3-ubyte.gz")) {
    GTEST_SKIP() << "MNIST is not in " << folder << "; UNISONO_TEST_MNIST_DIR can name its folder";
  }
  const LabeledImages train = load_mnist(folder, Split::kTrain);
  EXPECT_EQ(train.size(), 60'000);
  EXPECT_EQ(train.height, 28);
  EXPECT_EQ(train.width, 28);
  EXPECT_THAT(first_labels(train, 8), ElementsAre(5, 0, 4, 1, 9, 2, 1, 3));
  const LabeledImages test = load_mnist(folder, Split::kTest);
  EXPECT_EQ(test.size(), 10'000);
  EXPECT_THAT(first_labels(test, 5), ElementsAre(7, 2, 1, 0, 4));
}

}  // namespace
}  // namespace unisono::datasets
