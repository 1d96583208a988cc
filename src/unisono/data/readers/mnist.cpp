#include "unisono/data/readers/mnist.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/data/image_dataset.h"
#include "unisono/data/readers/data_folder.h"
#include "unisono/data/readers/idx.h"

namespace unisono {
namespace {

struct SplitNames {
  const char* title;
  const char* images;
  const char* labels;
};

constexpr SplitNames kTrainNames{.title = "training set",
                                 .images = "train-images-idx3-ubyte",
                                 .labels = "train-labels-idx1-ubyte"};
constexpr SplitNames kTestNames{
    .title = "test set", .images = "t10k-images-idx3-ubyte", .labels = "t10k-labels-idx1-ubyte"};

constexpr const char* kWhereFrom =
    "the Debian and Ubuntu package dataset-fashion-mnist brings Fashion-MNIST to "
    "/usr/share/datasets/fashion-mnist";

struct SplitFiles {
  std::string images;
  std::string labels;
};

// Kaggle's archives have a dot in place of the second dash.
data::Spellings spellings_of(const std::string& name) {
  std::string other = name;
  other[name.find("-idx")] = '.';
  return {name, std::move(other)};
}

SplitFiles find_files(const std::string& folder, const SplitNames& names) {
  data::check_data_folder(folder, kWhereFrom);
  const data::FoundFiles found = data::find_data_files(
      folder, "MNIST/raw", {spellings_of(names.images), spellings_of(names.labels)});
  if (found.missing.empty()) {
    return {.images = found.paths[0], .labels = found.paths[1]};
  }
  if (!found.paths.empty()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("data folder \"{}\": {} is there, but not {} (plain or .gz) beside it",
                            folder,
                            found.paths.front(),
                            found.missing.front()));
  }
  throw Error(ErrorCode::kNotFound,
              fmt::format("data folder \"{0}\": no {1} in it; looked for {2} and {3}, plain or "
                          ".gz, in {0}, {0}/MNIST/raw and the other folders in {0}; {4}",
                          folder,
                          names.title,
                          names.images,
                          names.labels,
                          kWhereFrom));
}

std::string shape_text(const IdxArray& array) {
  std::string text = to_string(array.dtype);
  const char* separator = "[";
  for (const std::int64_t dim : array.dims) {
    text += fmt::format("{}{}", separator, dim);
    separator = ", ";
  }
  return text + "]";
}

IdxArray read_bytes(const std::string& path, std::size_t n_dims, const char* meaning) {
  IdxArray array = read_idx(path);
  if (array.dtype != DType::kUInt8 || array.dims.size() != n_dims) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: holds {}, but {} are u8 with {} dimension{}",
                            path,
                            shape_text(array),
                            meaning,
                            n_dims,
                            n_dims == 1 ? "" : "s"));
  }
  return array;
}

void check_labels(const std::vector<std::byte>& labels, const std::string& path) {
  constexpr std::byte kMaxLabel{9};
  const auto bad = std::ranges::find_if(labels, [](std::byte label) { return label > kMaxLabel; });
  if (bad != labels.end()) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: label {} of {} is {}; labels are 0 to 9",
                            path,
                            bad - labels.begin(),
                            labels.size(),
                            std::to_integer<int>(*bad)));
  }
}

}  // namespace

LabeledImages load_mnist(const std::string& folder, Split split) {
  const SplitFiles files = find_files(folder, split == Split::kTrain ? kTrainNames : kTestNames);
  IdxArray images = read_bytes(files.images, 3, "images");
  IdxArray labels = read_bytes(files.labels, 1, "labels");
  if (images.dims[0] != labels.dims[0]) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{} has {} images, but {} has {} labels: they don't belong together",
                            files.images,
                            images.dims[0],
                            files.labels,
                            labels.dims[0]));
  }
  if (images.bytes.empty()) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: has no pixels: {}", files.images, shape_text(images)));
  }
  check_labels(labels.bytes, files.labels);
  return {.height = images.dims[1],
          .width = images.dims[2],
          .pixels = std::move(images.bytes),
          .labels = std::move(labels.bytes)};
}

}  // namespace unisono
