#include "net.h"

namespace mnist {

NetImpl::NetImpl()
    : conv1(register_module("conv1", torch::nn::Conv2d(1, 32, 3))),
      conv2(register_module("conv2", torch::nn::Conv2d(32, 64, 3))),
      dropout1(register_module("dropout1", torch::nn::Dropout(0.25))),
      dropout2(register_module("dropout2", torch::nn::Dropout(0.5))),
      fc1(register_module("fc1", torch::nn::Linear(9216, 128))),
      fc2(register_module("fc2", torch::nn::Linear(128, 10))) {
  // oneDNN's convolutions are a third faster on CPUs when channels lie together.
  for (const torch::nn::Conv2d& conv : {conv1, conv2}) {
    conv->weight.set_data(conv->weight.detach().contiguous(torch::MemoryFormat::ChannelsLast));
  }
}

torch::Tensor NetImpl::forward(torch::Tensor x) {
  x = torch::relu(conv1(x.contiguous(torch::MemoryFormat::ChannelsLast)));
  // relu(max_pool(x)) has max_pool(relu(x))'s values, from a quarter of the elements.
  x = torch::relu(torch::max_pool2d(conv2(x), 2));
  x = torch::flatten(dropout1(x), 1);
  x = dropout2(torch::relu(fc1(x)));
  return torch::log_softmax(fc2(x), 1);
}

}  // namespace mnist
