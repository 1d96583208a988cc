#include "sha256.h"

#include <array>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <openssl/evp.h>

namespace bench {

std::string sha256_of(const std::vector<at::Tensor>& tensors) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        &EVP_MD_CTX_free);
  bool is_ok = context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor packed = tensor.detach().contiguous();
    is_ok = is_ok && EVP_DigestUpdate(context.get(), packed.const_data_ptr(), packed.nbytes()) == 1;
  }
  std::array<unsigned char, 32> digest{};
  if (!is_ok || EVP_DigestFinal_ex(context.get(), digest.data(), nullptr) != 1) {
    throw std::runtime_error("SHA-256 failed");
  }
  std::string text;
  for (const unsigned char byte : digest) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", byte);
    text += digits.data();
  }
  return text;
}

}  // namespace bench
