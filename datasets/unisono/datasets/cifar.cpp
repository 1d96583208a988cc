#include "unisono/datasets/cifar.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/datasets/data_files.h"
#include "unisono/datasets/idx.h"
#include "unisono/datasets/image_dataset.h"

namespace unisono::datasets {
namespace {

constexpr std::size_t kPixelBytes = std::size_t{3} * 32 * 32;

// Labels at the beginning of a record, and the index of the wanted label.
struct Layout {
  const char* title;
  const char* folder;
  std::size_t n_label_bytes;
  std::size_t label_at;
  int n_classes;
};

Layout layout_of(CifarKind kind) {
  switch (kind) {
    case CifarKind::kCifar100:
      return {.title = "CIFAR-100",
              .folder = "cifar-100-binary",
              .n_label_bytes = 2,
              .label_at = 1,
              .n_classes = 100};
    case CifarKind::kCifar100Coarse:
      return {.title = "CIFAR-100",
              .folder = "cifar-100-binary",
              .n_label_bytes = 2,
              .label_at = 0,
              .n_classes = 20};
    case CifarKind::kCifar10:
      break;
  }
  return {.title = "CIFAR-10",
          .folder = "cifar-10-batches-bin",
          .n_label_bytes = 1,
          .label_at = 0,
          .n_classes = 10};
}

[[noreturn]] void throw_bad_record(const std::string& path,
                                   std::size_t record,
                                   std::size_t record_bytes,
                                   const std::string& problem) {
  throw Error(
      ErrorCode::kCorruptData,
      fmt::format("{}: record {}, at offset {}: {}", path, record, record * record_bytes, problem));
}

void append_file(const std::string& path, const Layout& layout, LabeledImages& images) {
  FileSource source(path);
  std::vector<std::byte> record(layout.n_label_bytes + kPixelBytes);
  std::size_t n_records = 0;
  while (const std::size_t n_read = source.read(record)) {
    if (n_read < record.size()) {
      throw_bad_record(path,
                       n_records,
                       record.size(),
                       fmt::format("ends early: {} of {} bytes are there; fetch the file again, or "
                                   "check that it is a {} file",
                                   n_read,
                                   record.size(),
                                   layout.title));
    }
    const std::byte label = record[layout.label_at];
    if (std::to_integer<int>(label) >= layout.n_classes) {
      throw_bad_record(path,
                       n_records,
                       record.size(),
                       fmt::format("the label is {}; labels are 0 to {}; is it a {} file?",
                                   std::to_integer<int>(label),
                                   layout.n_classes - 1,
                                   layout.title));
    }
    const auto pixels = std::span(record).subspan(layout.n_label_bytes);
    images.labels.push_back(label);
    images.pixels.insert(images.pixels.end(), pixels.begin(), pixels.end());
    ++n_records;
  }
  if (n_records == 0) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{}: has no records", path));
  }
}

std::vector<Spellings> names_of(Split split, CifarKind kind) {
  if (kind != CifarKind::kCifar10) {
    return {{split == Split::kTrain ? "train.bin" : "test.bin"}};
  }
  if (split == Split::kTest) {
    return {{"test_batch.bin"}};
  }
  return {{"data_batch_1.bin"},
          {"data_batch_2.bin"},
          {"data_batch_3.bin"},
          {"data_batch_4.bin"},
          {"data_batch_5.bin"}};
}

}  // namespace

LabeledImages read_cifar(std::span<const std::string> paths, CifarKind kind) {
  LabeledImages images{.channels = 3, .height = 32, .width = 32, .pixels = {}, .labels = {}};
  for (const std::string& path : paths) {
    append_file(path, layout_of(kind), images);
  }
  return images;
}

LabeledImages load_cifar(const std::string& folder, Split split, CifarKind kind) {
  const Layout layout = layout_of(kind);
  check_data_folder(folder, fmt::format("give the folder of {}'s binary version", layout.title));
  const FoundFiles found = find_data_files(folder, layout.folder, names_of(split, kind));
  if (!found.missing.empty()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("data folder \"{0}\": {1} (plain or .gz) is not there, nor in "
                            "{0}/{2} or another folder in {0}; that is {3}, binary version",
                            folder,
                            fmt::join(found.missing, ", "),
                            layout.folder,
                            layout.title));
  }
  return read_cifar(found.paths, kind);
}

}  // namespace unisono::datasets
