// Addresses as they travel: one is accepted exactly if sealing what is in it gives the same bytes.

#include <string>
#include <vector>

#include "ops/base/check.h"
#include "ops/transport/sealed_address.h"
#include "tests/core/fuzz/target.h"

namespace tf_strategies::fuzz {

std::vector<std::string> Seeds() {
  return {SealAddress(""), SealAddress("an address"), SealAddress(std::string(300, '\xFE'))};
}

}  // namespace tf_strategies::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tf_strategies;
  const std::string sealed(reinterpret_cast<const char*>(data), size);
  std::string address;
  const Status status = UnsealAddress(sealed, &address);
  if (status.ok()) {
    TFS_CHECK(SealAddress(address) == sealed);
  } else {
    TFS_CHECK(status.code() == Code::kInvalidArgument && !status.message().empty());
  }
  std::string back;
  TFS_CHECK(UnsealAddress(SealAddress(sealed), &back).ok());
  TFS_CHECK(back == sealed);
  return 0;
}
