#include "ops/channel/offered_sockets.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

namespace tf_strategies {
namespace {

constexpr size_t kMostKept = 64;

struct Offers {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::pair<std::string, int>> kept;
};

Offers& TheOffers() {
  static Offers* offers = new Offers;
  return *offers;
}

}  // namespace

void OfferSocket(const std::string& token, int socket) {
  Offers& offers = TheOffers();
  std::lock_guard<std::mutex> lock(offers.mutex);
  if (offers.kept.size() == kMostKept) {
    close(offers.kept.front().second);
    offers.kept.pop_front();
  }
  offers.kept.emplace_back(token, socket);
  offers.changed.notify_all();
}

Status TakeSocket(const std::string& token, std::chrono::milliseconds time, int* socket) {
  Offers& offers = TheOffers();
  std::unique_lock<std::mutex> lock(offers.mutex);
  auto found = offers.kept.end();
  const bool came = offers.changed.wait_for(lock, time, [&] {
    found = std::find_if(offers.kept.begin(), offers.kept.end(),
                         [&](const auto& each) { return each.first == token; });
    return found != offers.kept.end();
  });
  if (!came) return DeadlineExceeded("the worker has opened no data connection");
  *socket = found->second;
  offers.kept.erase(found);
  return Status::Ok();
}

}  // namespace tf_strategies
