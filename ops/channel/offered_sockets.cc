#include "ops/channel/offered_sockets.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>

namespace tf_strategies {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostKept = 256;
constexpr std::chrono::seconds kLongest{60};

struct Offer {
  std::string token;
  int socket;
  Clock::time_point since;
};

struct Offers {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Offer> kept;
};

Offers& TheOffers() {
  static Offers* offers = new Offers;
  return *offers;
}

}  // namespace

void OfferSocket(const std::string& token, int socket) {
  Offers& offers = TheOffers();
  std::lock_guard<std::mutex> lock(offers.mutex);
  const auto now = Clock::now();
  while (!offers.kept.empty() &&
         (offers.kept.size() >= kMostKept || now - offers.kept.front().since > kLongest)) {
    close(offers.kept.front().socket);
    offers.kept.pop_front();
  }
  offers.kept.push_back({token, socket, now});
  offers.changed.notify_all();
}

Status TakeSocket(const std::string& token, std::chrono::milliseconds time, int* socket) {
  Offers& offers = TheOffers();
  std::unique_lock<std::mutex> lock(offers.mutex);
  auto found = offers.kept.end();
  const bool came = offers.changed.wait_for(lock, time, [&] {
    found = std::find_if(offers.kept.begin(), offers.kept.end(),
                         [&](const Offer& each) { return each.token == token; });
    return found != offers.kept.end();
  });
  if (!came) return DeadlineExceeded("the worker has opened no data connection");
  *socket = found->socket;
  offers.kept.erase(found);
  return Status::Ok();
}

}  // namespace tf_strategies
