#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <torch/optim/schedulers/step_lr.h>

#include "unisono/comm/process_group.h"
#include "unisono/data/batch.h"
#include "unisono/data/data_loader.h"
#include "unisono/data/image_dataset.h"
#include "unisono/data/loader_base.h"
#include "unisono/data/samplers/distributed_sampler.h"
#include "unisono/report/progress.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/optim/adadelta.h"

#include "checkpoints.h"
#include "datasets.h"
#include "net.h"
#include "options.h"

namespace mnist {

/// Trains the net on this rank's share of the images and tests it on its share of the test images.
class Trainer {
 public:
  Trainer(std::shared_ptr<unisono::ProcessGroup> group,
          const Options& options,
          const Datasets& datasets);

  /// Goes on from the latest checkpoint, if the options say so and there is one.
  void resume();

  /// After resume(): opens the files that the options name for the training's progress.
  void open_progress();

  /// All epochs that are left; rank 0 prints a line for each.
  void run();

  /// Rank 0 saves the net, if the options say where.
  void save();

 private:
  struct EpochResult {
    double loss;      // mean over all ranks' steps
    double own_loss;  // mean over this rank's steps
    double seconds;
    std::int64_t n_images;  // of all ranks
  };

  EpochResult train_epoch();
  void train_batch(unisono::Batch batch);
  double test_accuracy();
  void print_epoch(int epoch, const EpochResult& result, double accuracy);
  void print_report();

  std::shared_ptr<unisono::ProcessGroup> group_;
  Options options_;
  bool is_first_rank_;
  std::shared_ptr<const unisono::ImageDataset> train_set_;
  std::shared_ptr<const unisono::ImageDataset> test_set_;
  unisono::DistributedSampler sampler_;
  unisono::DataLoader train_loader_;
  unisono::DataLoader test_loader_;
  unisono::DistributedDataParallel<Net> model_;
  unisono::optim::Adadelta optimizer_;
  torch::optim::StepLR scheduler_;
  std::optional<Checkpoints> checkpoints_;
  std::optional<unisono::Progress> progress_;
  Position position_ = {};
  std::optional<unisono::LoaderState> taken_;  // of the epoch that is gone on with
};

}  // namespace mnist
