// Measures the samples per second of a loader, for 0, 1, 2, ... workers.
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Error.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>

#include "unisono/base/error.h"
#include "unisono/base/process.h"
#include "unisono/data/batch.h"
#include "unisono/data/data_loader.h"
#include "unisono/datasets/cifar.h"
#include "unisono/datasets/idx.h"
#include "unisono/datasets/image_dataset.h"
#include "unisono/datasets/image_folder.h"
#include "unisono/datasets/transforms.h"

namespace unisono::datasets {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

struct DataArguments {
  std::string folder;
  std::int64_t batch_size = 64;
  int max_workers = available_cores();
  double seconds = 1;
};

// Returns an empty optional if the folder does not contain this data set.
template <class Load>
std::optional<LabeledImages> try_load(Load load) {
  try {
    return load();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) {
      throw;
    }
    return std::nullopt;
  }
}

struct NamedDataset {
  std::string name;
  std::shared_ptr<const data::Dataset> dataset;
};

// Resizes images that differ in size from the first image.
NamedDataset load_image_folder(const std::string& folder) {
  try {
    const auto images = std::make_shared<ImageFolder>(
        folder, Normalize(0.5, 0.25), ImageFolderOptions{.fit = ImageFit::kCover});
    return {.name = fmt::format("images of {} classes, decoded to {} x {} pixels (height x width), "
                                "cropped and flipped",
                                images->classes().size(),
                                images->shape().height,
                                images->shape().width),
            .dataset = std::make_shared<AugmentedImages>(images)};
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) {
      throw;
    }
    throw Error(ErrorCode::kNotFound,
                fmt::format("{} (MNIST and CIFAR are not there either)", error.what()));
  }
}

NamedDataset load(const std::string& folder) {
  if (std::optional<LabeledImages> images =
          try_load([&] { return load_mnist(folder, Split::kTrain); })) {
    return {.name = "MNIST, normalized",
            .dataset = std::make_shared<ImageDataset>(std::move(*images), mnist_normalize())};
  }
  for (const auto& [kind, name] :
       {std::pair(CifarKind::kCifar10, "CIFAR-10, cropped and flipped"),
        std::pair(CifarKind::kCifar100, "CIFAR-100, cropped and flipped")}) {
    if (std::optional<LabeledImages> images =
            try_load([&] { return load_cifar(folder, Split::kTrain, kind); })) {
      return {.name = name,
              .dataset = std::make_shared<AugmentedImages>(
                  std::make_shared<ImageDataset>(std::move(*images), Normalize(0.5, 0.25)))};
    }
  }
  return load_image_folder(folder);
}

int bench_reading(const DataArguments& arguments) {
  const auto [name, dataset] = load(arguments.folder);
  fmt::print("{}: {} samples in batches of {}\n\n  workers  samples/s\n",
             name,
             dataset->size(),
             arguments.batch_size);
  const std::vector<LoaderTiming> timings =
      time_loaders(dataset,
                   {.batch_size = arguments.batch_size,
                    .max_workers = arguments.max_workers,
                    .duration = std::chrono::duration_cast<std::chrono::nanoseconds>(
                        std::chrono::duration<double>(arguments.seconds))});
  for (const LoaderTiming& timing : timings) {
    fmt::print("  {:>7}  {:>9.0f}\n", timing.num_workers, timing.samples_per_second);
  }
  fmt::print("\nbest: num_workers = {}\n", best_timing(timings).num_workers);
  return 0;
}

// Returns the exit code.
int run(int argc, char** argv) {
  CLI::App app(
      "Measures how fast a loader brings the images of a folder: MNIST, CIFAR, or a folder of JPEG "
      "and PNG files for each class",
      "unisono-data-bench");
  DataArguments arguments;
  app.add_option("folder", arguments.folder, "Folder of the data set")
      ->type_name("DIR")
      ->required();
  app.add_option("--batch-size", arguments.batch_size, "Images per batch")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--max-workers", arguments.max_workers, "Most workers; default: the cores")
      ->check(CLI::Range(0, 1024));
  app.add_option("--seconds", arguments.seconds, "Time for each number of workers")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 3600.0));
  app.footer(
      "Examples:\n"
      "  unisono-data-bench mnist\n"
      "  unisono-data-bench cifar-10 --batch-size 128 --max-workers 8\n"
      "  unisono-data-bench imagenet/train --seconds 10");
  try {
    app.parse(argc, argv);
    return bench_reading(arguments);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      return app.exit(error);
    }
    fmt::print(stderr, "[unisono] error: {}; see unisono-data-bench --help\n", error.what());
    return kWrongUsage;
  } catch (const Error& error) {
    fmt::print(stderr, "[unisono] error: {}\n", error.what());
    return error.code() == ErrorCode::kInvalidArgument ? kWrongUsage : kFailed;
  } catch (const std::exception& error) {
    fmt::print(stderr, "[unisono] error: {}\n", error.what());
    return kFailed;
  }
}

}  // namespace
}  // namespace unisono::datasets

int main(int argc, char** argv) {
  return unisono::datasets::run(argc, argv);
}
