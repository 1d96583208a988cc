#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>

#include "unisono/base/cores.h"
#include "unisono/base/error.h"
#include "unisono/cli/commands.h"
#include "unisono/cli/parse.h"
#include "unisono/data/dataset.h"
#include "unisono/data/image_dataset.h"
#include "unisono/data/images/image_folder.h"
#include "unisono/data/loader_timing.h"
#include "unisono/data/readers/cifar.h"
#include "unisono/data/readers/mnist.h"
#include "unisono/data/transforms/augmented_images.h"
#include "unisono/data/transforms/normalize.h"

namespace unisono::cli {
namespace {

struct DataArguments {
  std::string folder;
  std::int64_t batch_size = 64;
  int max_workers = available_cores();
  double seconds = 1;
};

// Nothing where the folder has not this data set.
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
  std::shared_ptr<const Dataset> dataset;
};

// Images of other sizes than the first one's are resized.
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

}  // namespace

int data_command(const CommandLine& line) {
  CLI::App app("Looks into data for training", "unisono data");
  app.require_subcommand(1);
  DataArguments arguments;
  CLI::App* const bench_app = app.add_subcommand(
      "bench",
      "Measure how fast a loader brings the images of a folder: MNIST, CIFAR, or a folder of JPEG "
      "and PNG files for each class");
  bench_app->add_option("folder", arguments.folder, "Folder of the data set")
      ->type_name("DIR")
      ->required();
  bench_app->add_option("--batch-size", arguments.batch_size, "Images per batch")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  bench_app->add_option("--max-workers", arguments.max_workers, "Most workers; default: the cores")
      ->check(CLI::Range(0, 1024));
  bench_app->add_option("--seconds", arguments.seconds, "Time for each number of workers")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 3600.0));
  add_examples(*bench_app,
               {"unisono data bench mnist",
                "unisono data bench cifar-10 --batch-size 128 --max-workers 8",
                "unisono data bench imagenet/train --seconds 10"});
  if (const std::optional<int> exit_code = parse(app, line)) {
    return *exit_code;
  }
  return bench_reading(arguments);
}

}  // namespace unisono::cli
