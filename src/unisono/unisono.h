#pragma once

/// The door of the core, for programs with and without LibTorch: process groups, messages, objects,
/// stores, spawning, samplers and loaders, checkpoints, progress. Link unisono::core.
///
/// Cost: the compiler needs about 1 s for this header.

#include "unisono/base/buffer.h"                            // IWYU pragma: export
#include "unisono/base/error.h"                             // IWYU pragma: export
#include "unisono/base/gpus.h"                              // IWYU pragma: export
#include "unisono/checkpoint/latest.h"                      // IWYU pragma: export
#include "unisono/checkpoint/reader.h"                      // IWYU pragma: export
#include "unisono/checkpoint/save.h"                        // IWYU pragma: export
#include "unisono/comm/objects.h"                           // IWYU pragma: export
#include "unisono/comm/process_group.h"                     // IWYU pragma: export
#include "unisono/data/batch.h"                             // IWYU pragma: export
#include "unisono/data/data_loader.h"                       // IWYU pragma: export
#include "unisono/data/random.h"                            // IWYU pragma: export
#include "unisono/data/samplers/data_partitioner.h"         // IWYU pragma: export
#include "unisono/data/samplers/distributed_sampler.h"      // IWYU pragma: export
#include "unisono/data/samplers/length_bucketed_sampler.h"  // IWYU pragma: export
#include "unisono/data/samplers/sampler.h"                  // IWYU pragma: export
#include "unisono/launch/spawn_ranks.h"                     // IWYU pragma: export
#include "unisono/rendezvous/local_rank.h"                  // IWYU pragma: export
#include "unisono/report/progress.h"                        // IWYU pragma: export
#include "unisono/report/step_report.h"                     // IWYU pragma: export
#include "unisono/store/file_store.h"                       // IWYU pragma: export
#include "unisono/store/hash_store.h"                       // IWYU pragma: export
#include "unisono/store/store.h"                            // IWYU pragma: export
#include "unisono/store/tcp_store.h"                        // IWYU pragma: export
