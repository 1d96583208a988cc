// Speaker identification with the options of voxceleb_trainer: the program
// starts the workers. make_lists.py unpacks the recordings of six speakers into a folder:
//
//     make_lists.py fsdd_recordings.tar.gz sounds
//     speaker_identification --distributed --nprocs 2 --syncBN --train_path sounds
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>
#include <unisono/datasets.h>
#include <unisono/torch.h>

#include "../training.h"
#include "options.h"
#include "speaker_net.h"

namespace datasets = unisono::datasets;

namespace {

// Returns log-mel features of half a second of each recording.
std::shared_ptr<datasets::SoundCrops> load(const Options& args, const char* list, bool random) {
  constexpr std::int64_t kRate = 8'000;
  const std::string path = args.train_path + "/" + list;
  return std::make_shared<datasets::SoundCrops>(
      std::make_shared<datasets::WavList>(path, args.train_path, kRate),
      datasets::SoundCropOptions{.n_samples = kRate / 2,
                                 .random = random,
                                 .log_mel = datasets::LogMelOptions{.sample_rate = kRate,
                                                                    .window = kRate / 40,
                                                                    .hop = kRate / 100,
                                                                    .n_fft = 256,
                                                                    .n_mels = kFeatures,
                                                                    .f_max = kRate / 2.0}});
}

// The workers connect through the port or, without a port, through the store of spawn().
unisono::InitOptions session(int rank, const Options& args) {
  if (args.port == 0) {
    return {};
  }
  return {.init_method = "tcp://127.0.0.1:" + std::to_string(args.port) + "?rank=" +
                         std::to_string(rank) + "&world_size=" + std::to_string(args.nprocs)};
}

void main_worker(int rank, const Options& args) {
  const auto group = unisono::init_process_group(session(rank, args));
  const int n_workers = group->world_size();
  const auto sounds = load(args, "train_list.txt", true);
  const auto test_sounds = load(args, "test_list.txt", false);
  unisono::DistributedSampler sampler(sounds->size(), *group);
  unisono::DataLoader loader(sounds,
                             {.batch_size = args.batch_size,
                              .num_workers = args.n_data_loader_threads,
                              .drop_last = true});
  unisono::DataLoader test_loader(test_sounds, {.batch_size = 100});

  torch::manual_seed(1);
  torch::nn::Sequential net = make_speaker_net();
  if (args.sync_bn) {
    std::vector<int> all(static_cast<std::size_t>(n_workers));
    std::iota(all.begin(), all.end(), 0);
    unisono::nn::convert_sync_batchnorm(*net, group->new_group(all));
    std::printf("----syncBN----\n");
  }
  unisono::DistributedDataParallel model(net, group);
  std::printf("Loaded the model on CPU %d\n", args.distributed ? rank : args.gpu);
  std::fflush(stdout);
  torch::optim::Adam optimizer(model.parameters(), torch::optim::AdamOptions(args.lr));
  unisono::report::Progress progress(
      *group, {.format = unisono::report::ProgressFormat::kNone, .json_file = args.json_file});
  for (int epoch = 0; epoch < args.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    sounds->set_epoch(epoch);
    loader.start(sampler);
    model.train();
    const double loss = examples::train_epoch(
        loader, optimizer, progress, n_workers, [&](const auto& samples, const auto& speakers) {
          const torch::Tensor scores = model(samples.transpose(1, 2));
          const torch::Tensor batch_loss = torch::cross_entropy_loss(scores, speakers);
          batch_loss.backward();
          return batch_loss;
        });
    model.eval();
    test_loader.start(unisono::EvaluationSampler(test_sounds->size(), *group));
    const double accuracy =
        examples::test_accuracy(*group, test_loader, [&](const torch::Tensor& samples) {
          return model.module()->forward(samples.transpose(1, 2));
        });
    std::printf("worker %d of %d, epoch %d: loss %.4f, test accuracy %.2f%%\n",
                rank,
                n_workers,
                epoch,
                loss,
                100 * accuracy);
    std::fflush(stdout);
  }
  model.check_consistent();
  unisono::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  const Options args = parse_options(argc, argv);
  return examples::exit_code_of("speaker_identification", [&] {
    unisono::spawn(main_worker, std::tuple(args), {.nprocs = args.nprocs});
  });
}
