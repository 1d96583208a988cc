#pragma once

namespace unisono {

/// The part of a data set that is trained on, and the one that is tested on.
enum class Split { kTrain, kTest };

}  // namespace unisono
