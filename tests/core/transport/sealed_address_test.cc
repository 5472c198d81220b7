// Addresses that travel: whole ones come back as they were, and all others are refused.

#include "ops/transport/sealed_address.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "ops/transport/ucx.h"

namespace tf_strategies {
namespace {

TEST(SealedAddress, ComesBackAsItWas) {
  for (const std::string& address : {std::string(), std::string("a\0b", 3), std::string(5000, 'x')}) {
    std::string back;
    ASSERT_TRUE(UnsealAddress(SealAddress(address), &back).ok());
    EXPECT_EQ(back, address);
  }
}

TEST(SealedAddress, EveryCutIsRefused) {
  const std::string sealed = SealAddress("an address");
  std::string back;
  for (size_t bytes = 0; bytes < sealed.size(); ++bytes) {
    EXPECT_EQ(UnsealAddress(sealed.substr(0, bytes), &back).code(), Code::kInvalidArgument) << bytes;
  }
  EXPECT_EQ(UnsealAddress(sealed + "x", &back).code(), Code::kInvalidArgument);
}

TEST(SealedAddress, EveryChangedByteIsRefused) {
  const std::string sealed = SealAddress("an address");
  std::string back;
  for (size_t i = 0; i < sealed.size(); ++i) {
    std::string changed = sealed;
    changed[i] ^= 1;
    EXPECT_EQ(UnsealAddress(changed, &back).code(), Code::kInvalidArgument) << i;
  }
}

TEST(SealedAddress, UcxRefusesAPeersTruncatedAddress) {
  std::unique_ptr<UcxWorker> mine, theirs;
  ASSERT_TRUE(UcxWorker::Open({"tcp,self", "lo"}, &mine).ok());
  ASSERT_TRUE(UcxWorker::Open({"tcp,self", "lo"}, &theirs).ok());
  const std::string address = theirs->address();
  std::unique_ptr<Transport> transport;
  const Status status = UcxWorker::Connect(std::move(mine), 0, {"", address.substr(0, address.size() / 2)},
                                           {true, true}, &transport);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("rank 1 is damaged"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace tf_strategies
