#pragma once

#include <memory>
#include <string>

#include <CLI/App.hpp>

#include "unisono/comm/process_group.h"
#include "unisono/torch/parallel/mesh/mesh.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "options.h"

namespace imdb {

struct HybridOptions : Options {
  int parts = 2;
  std::string schedule = "1f1b";
  std::string checkpoint = "never";
  int steps = 0;            // to measure instead of a training; 0: train
  std::string json;         // none: what was measured is printed
  std::string layer_times;  // none: layers are not measured
  std::string svg;          // none: no picture
};

void add_hybrid_options(CLI::App& app, HybridOptions& options);

/// What of them concerns the pipeline. Throws unisono::Error for a schedule that there is not.
unisono::parallel::PipelineOptions pipeline_options(const HybridOptions& options);

/// Replicas ("data") of so many parts each ("pipe"), which are next to each other.
///
/// Throws unisono::Error where the ranks don't come out even.
unisono::parallel::Mesh make_mesh(const std::shared_ptr<unisono::ProcessGroup>& group, int parts);

}  // namespace imdb
