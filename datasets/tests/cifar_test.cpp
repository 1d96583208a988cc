#include "unisono/datasets/cifar.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/datasets/image_dataset.h"
#include "unisono/datasets/transforms.h"

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

constexpr std::size_t kPixels = std::size_t{3} * 32 * 32;

// A record with these label bytes. All pixels equal the last label byte.
std::string record(const std::string& labels) {
  return labels + std::string(kPixels, labels.back());
}

std::vector<std::int64_t> labels_of(const LabeledImages& images) {
  std::vector<std::int64_t> labels;
  for (std::int64_t index = 0; index < images.size(); ++index) {
    labels.push_back(images.label(index));
  }
  return labels;
}

class Cifar : public ::testing::Test {
 protected:
  CaughtError error_of_file(const std::string& bytes, CifarKind kind = CifarKind::kCifar10) {
    path_ = files_.write("file.bin", bytes);
    return error_of([&] { (void)read_cifar(std::span(&path_, 1), kind); });
  }

  test::TemporaryFolder files_;
  std::string path_;
};

TEST_F(Cifar, ReadsImagesOfThreeChannels) {
  const std::vector<std::string> paths{files_.write("a", record("\3") + record("\1")),
                                       files_.write("b", gzip(record("\7")))};
  const LabeledImages images = read_cifar(paths, CifarKind::kCifar10);
  EXPECT_THAT(labels_of(images), ElementsAre(3, 1, 7));
  EXPECT_EQ(images.image(2).size(), kPixels);
  EXPECT_EQ(images.image(2).back(), std::byte{7});

  const ImageDataset dataset(images, {Normalize(0, 1), Normalize(0, 0.5), Normalize(0, 0.25)});
  EXPECT_THAT(dataset.sample_shape(), ElementsAre(3, 32, 32));
  std::vector<float> sample(kPixels);
  EXPECT_EQ(dataset.load(0, std::as_writable_bytes(std::span(sample))), 3);
  const float value = 3.0F / 255.0F;
  EXPECT_EQ(sample[0], value);
  EXPECT_EQ(sample[1023], value);
  EXPECT_EQ(sample[1024], value / 0.5F);
  EXPECT_EQ(sample[3071], value / 0.25F);
}

TEST_F(Cifar, FindsTheFilesOfTheArchives) {
  for (const std::string number : {"1", "2", "3", "4", "5"}) {
    (void)files_.write("ten/cifar-10-batches-bin/data_batch_" + number + ".bin",
                       record({static_cast<char>(number[0] - '0')}));
  }
  (void)files_.write("ten/cifar-10-batches-bin/test_batch.bin", record("\x8"));
  EXPECT_THAT(labels_of(load_cifar(files_.path() + "/ten", Split::kTrain)),
              ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(labels_of(load_cifar(files_.path() + "/ten", Split::kTest)), ElementsAre(8));

  (void)files_.write("hundred/train.bin.gz", gzip(record("\x13\x63")));
  EXPECT_THAT(
      labels_of(load_cifar(files_.path() + "/hundred", Split::kTrain, CifarKind::kCifar100)),
      ElementsAre(99));
  EXPECT_THAT(
      labels_of(load_cifar(files_.path() + "/hundred", Split::kTrain, CifarKind::kCifar100Coarse)),
      ElementsAre(19));
}

TEST_F(Cifar, FindsFilesInFoldersOfTheirNamesAndOneFolderDown) {
  (void)files_.write("own/test_batch.bin/test_batch.bin", record("\x8"));
  (void)files_.write("below/archive/test_batch.bin.gz", gzip(record("\x8")));
  (void)files_.write("below/.cache/test_batch.bin", "x");
  for (const std::string folder : {"own", "below"}) {
    EXPECT_THAT(labels_of(load_cifar(files_.path() + "/" + folder, Split::kTest)), ElementsAre(8))
        << folder;
  }
}

TEST_F(Cifar, NamesTheFilesThatAreMissing) {
  for (const std::string name : {"data_batch_1.bin", "data_batch_3.bin", "data_batch_5.bin"}) {
    (void)files_.write(name, record("\1"));
  }
  const CaughtError error = error_of([&] { (void)load_cifar(files_.path(), Split::kTrain); });
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_THAT(error.message,
              AllOf(HasSubstr("data_batch_2.bin, data_batch_4.bin (plain or .gz)"),
                    HasSubstr("cifar-10-batches-bin"),
                    HasSubstr("CIFAR-10, binary version")));
  EXPECT_EQ(error_of([] { (void)load_cifar("/nowhere/at/all", Split::kTest); }).code,
            ErrorCode::kNotFound);
}

TEST_F(Cifar, ARecordThatEndsEarlyIsNamedWithItsOffset) {
  const std::string two = record("\1") + record("\2");
  const CaughtError error = error_of_file(two.substr(0, two.size() - 1));
  EXPECT_EQ(error.code, ErrorCode::kCorruptData);
  EXPECT_EQ(error.message,
            path_ +
                ": record 1, at offset 3073: ends early: 3072 of 3073 bytes are there; fetch "
                "the file again, or check that it is a CIFAR-10 file");
  EXPECT_THAT(error_of_file("").message, HasSubstr("has no records"));
}

TEST_F(Cifar, AnImpossibleLabelIsNamedWithItsOffset) {
  EXPECT_THAT(error_of_file(record("\1") + record("\x0a")).message,
              HasSubstr("record 1, at offset 3073: the label is 10; labels are 0 to 9"));
  EXPECT_THAT(error_of_file(record("\1\x64"), CifarKind::kCifar100).message,
              HasSubstr("the label is 100; labels are 0 to 99"));
  EXPECT_THAT(error_of_file(record("\x14\1"), CifarKind::kCifar100Coarse).message,
              HasSubstr("the label is 20; labels are 0 to 19"));
}

class CifarRealFiles : public ::testing::TestWithParam<std::pair<const char*, int>> {};

TEST_P(CifarRealFiles, HaveOfEachClassEquallyMany) {
  const auto& [name, n_of_class] = GetParam();
  if (!datasets::testing::has_real_data(name)) {
    GTEST_SKIP() << datasets::testing::why_skipped(name);
  }
  const std::string path = datasets::testing::real_data_path(name);
  const LabeledImages images = read_cifar(std::span(&path, 1), CifarKind::kCifar10);
  std::map<std::int64_t, int> counts;
  for (const std::int64_t label : labels_of(images)) {
    ++counts[label];
  }
  EXPECT_EQ(counts.size(), 10U);
  EXPECT_THAT(counts, ::testing::Each(::testing::Pair(::testing::_, n_of_class)));
  EXPECT_EQ(images.pixels.size(), images.labels.size() * kPixels);
}

INSTANTIATE_TEST_SUITE_P(Files,
                         CifarRealFiles,
                         ::testing::Values(std::pair("cifar10_jpeg_subset_train_10000.bin.gz",
                                                     1000),
                                           std::pair("cifar10_jpeg_subset_test_2000.bin.gz", 200)));

}  // namespace
}  // namespace unisono::datasets
