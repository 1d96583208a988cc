#pragma once

#include <string>

#include "unisono/data/image_dataset.h"
#include "unisono/data/readers/split.h"

namespace unisono {

/// Reads MNIST's training or test set, or another set in the same files, such as Fashion-MNIST.
///
/// The files are train-images-idx3-ubyte and train-labels-idx1-ubyte, or t10k-... for the test set,
/// also as train-images.idx3-ubyte, plain or with ".gz" after the name. They lie in `folder`, in
/// `folder`/MNIST/raw, where torchvision puts them, or in another folder directly below, each also
/// in a folder of the file's name. There is at least one image, images and labels are equally many,
/// labels are 0 to 9; the images' size is what the file says.
///
/// Throws Error: kNotFound when the files are not there, kInvalidArgument where several folders
/// below have them, else what read_idx() throws; kCorruptData
/// when the two files don't fit together.
[[nodiscard]] LabeledImages load_mnist(const std::string& folder, Split split);

}  // namespace unisono
