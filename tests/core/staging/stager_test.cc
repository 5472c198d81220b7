#include "ops/staging/stager.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "ops/base/check.h"
#include "ops/staging/library.h"
#include "tests/core/staging/recorded_cuda.h"

namespace tf_strategies {
namespace {

using Memory = RecordedCuda::Memory;
using Bytes = std::vector<uint8_t>;

// The memory of one pack of two pieces.
struct Pack {
  explicit Pack(RecordedCuda* cuda, int64_t bytes = 1000)
      : host(cuda->Allocate(2 * bytes)), devices{cuda->Allocate(bytes), cuda->Allocate(bytes)} {
    for (int i = 0; i < 2; ++i) pieces.push_back({devices[i]->data(), host->data() + i * bytes, bytes});
  }

  Memory host;
  std::vector<Memory> devices;
  std::vector<Stager::Piece> pieces;
};

class StagerTest : public testing::Test {
 protected:
  StagerTest() { TFS_CHECK(Stager::Make(cuda_.functions(), 0, &stager_).ok()); }
  ~StagerTest() override { EXPECT_EQ(cuda_.errors(), std::vector<std::string>()); }

  // Copies down, and returns what then() is told.
  Status Down(const std::shared_ptr<Pack>& pack) {
    std::promise<Status> told;
    stager_->ToHost(stream_, pack->pieces, pack, [&](const Status& status) { told.set_value(status); });
    return told.get_future().get();
  }

  RecordedCuda cuda_;
  const TfsStream stream_ = cuda_.NewStream();
  std::unique_ptr<Stager> stager_;
};

TEST_F(StagerTest, CopiesToTheHostWhatTheStreamHasComputed) {
  for (int round = 1; round <= 20; ++round) {
    auto pack = std::make_shared<Pack>(&cuda_);
    cuda_.Launch(stream_, [&] {
      for (const Memory& device : pack->devices) device->assign(device->size(), static_cast<uint8_t>(round));
    });
    EXPECT_TRUE(Down(pack).ok());
    EXPECT_EQ(*pack->host, Bytes(2000, static_cast<uint8_t>(round)));
  }
}

TEST_F(StagerTest, TheStreamUsesWhatWasCopiedToTheDevice) {
  for (int round = 1; round <= 20; ++round) {
    auto pack = std::make_shared<Pack>(&cuda_);
    pack->host->assign(2000, static_cast<uint8_t>(round));
    Bytes seen;
    std::promise<Status> told;
    stager_->ToDevice(stream_, pack->pieces, pack, [&](const Status& status) {
      cuda_.Launch(stream_, [&] { seen = *pack->devices[1]; });
      told.set_value(status);
    });
    EXPECT_TRUE(told.get_future().get().ok());
    cuda_.Finish(stream_);
    EXPECT_EQ(seen, Bytes(1000, static_cast<uint8_t>(round)));
  }
}

TEST_F(StagerTest, ACopyOnTheStreamComesAfterItsEarlierWork) {
  auto pack = std::make_shared<Pack>(&cuda_);
  pack->host->assign(2000, 7);
  Bytes before, after;
  cuda_.Launch(stream_, [&] { before = *pack->devices[0]; });
  EXPECT_TRUE(stager_->Copy(stream_, pack->pieces, pack).ok());
  cuda_.Launch(stream_, [&] { after = *pack->devices[0]; });
  cuda_.Finish(stream_);
  EXPECT_EQ(before, Bytes(1000, 0));
  EXPECT_EQ(after, Bytes(1000, 7));
}

// As in training: packs of several threads go down, are changed on the host, and go up again.
TEST_F(StagerTest, ManyPacksGoDownAndUpAtOnce) {
  constexpr int kThreads = 4, kPacks = 25;
  std::atomic<int> right{0};
  std::vector<std::weak_ptr<Pack>> packs(kThreads * kPacks);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const TfsStream stream = cuda_.NewStream();
      for (int i = 0; i < kPacks; ++i) {
        auto pack = std::make_shared<Pack>(&cuda_, 100 + i);
        packs[t * kPacks + i] = pack;
        const auto value = static_cast<uint8_t>(t * kPacks + i);
        cuda_.Launch(stream, [devices = pack->devices, value] {
          for (const Memory& device : devices) device->assign(device->size(), value);
        });
        std::promise<void> told;
        stager_->ToHost(stream, pack->pieces, pack,
                        [&, weak = std::weak_ptr<Pack>(pack)](const Status& down) {
                          const std::shared_ptr<Pack> mine = weak.lock();
                          TFS_CHECK(down.ok() && mine != nullptr);
                          for (uint8_t& byte : *mine->host) ++byte;
                          stager_->ToDevice(stream, mine->pieces, mine, [&](const Status& up) {
                            TFS_CHECK(up.ok());
                            told.set_value();
                          });
                        });
        told.get_future().get();
        cuda_.Launch(stream, [devices = pack->devices, value, &right] {
          for (const Memory& device : devices)
            right += *device == Bytes(device->size(), static_cast<uint8_t>(value + 1)) ? 1 : 0;
        });
      }
      cuda_.Finish(stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 2 * kThreads * kPacks);
  stager_.reset();
  for (const auto& pack : packs) EXPECT_TRUE(pack.expired());
}

TEST_F(StagerTest, KeepsTheMemoryUntilTheCopiesHaveEnded) {
  std::weak_ptr<Pack> released;
  {
    auto pack = std::make_shared<Pack>(&cuda_);
    released = pack;
    std::promise<void> told;
    stager_->ToDevice(stream_, pack->pieces, pack, [&](const Status&) { told.set_value(); });
    pack.reset();
    told.get_future().get();
  }
  stager_.reset();  // waits for the copies, which check that their memory exists
  EXPECT_TRUE(released.expired());
}

// Whichever call of CUDA fails, the caller is told once, and memory that a copy may use is not freed.
TEST_F(StagerTest, TellsOfEachFailure) {
  // An event, its mark, the wait for it, two copies, their mark, the wait for it.
  constexpr int kCallsDown = 7;
  for (int n = 0; n < kCallsDown; ++n) {
    auto pack = std::make_shared<Pack>(&cuda_);
    cuda_.FailCall(n);
    const Status told = Down(pack);
    EXPECT_EQ(told.code(), Code::kInternal) << n;
    EXPECT_NE(told.message().find("fallen off the bus"), std::string::npos) << told.message();
    EXPECT_GT(pack.use_count(), 1) << "the memory of call " << n << " may still be in use";
  }
  // An event, two copies, their mark, the wait of the stream; then the stager waits, of which the caller is not told.
  constexpr int kCallsUp = 6;
  for (int n = 0; n < kCallsUp; ++n) {
    auto pack = std::make_shared<Pack>(&cuda_);
    std::atomic<int> told{0};
    std::promise<Status> first;
    cuda_.FailCall(n);
    stager_->ToDevice(stream_, pack->pieces, pack, [&](const Status& status) {
      if (++told == 1) first.set_value(status);
    });
    const Status up = first.get_future().get();
    EXPECT_EQ(up.ok(), n == kCallsUp - 1) << n;
    EXPECT_EQ(told, 1);
  }
  cuda_.FinishAll();
}

TEST(Library, IsRefusedWithAReason) {
  Stager* stager = nullptr;
  EXPECT_EQ(Stager::Of(nullptr, &stager).code(), Code::kFailedPrecondition);
  const Status missing = LoadCuda("/nonexistent/libtf_strategies_cuda.so");
  EXPECT_EQ(missing.code(), Code::kFailedPrecondition);
  EXPECT_NE(missing.message().find("/nonexistent/libtf_strategies_cuda.so does not load"), std::string::npos);
  const Status another = LoadCuda("libdl.so.2");
  EXPECT_NE(another.message().find("another version"), std::string::npos) << another.message();
  EXPECT_EQ(Cuda(), nullptr);
}

}  // namespace
}  // namespace tf_strategies
