#include "ops/confine/c_api.h"

#include <chrono>

#include "ops/base/c_interface.h"
#include "ops/confine/confine.h"

namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point After(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

int tfs_confine_to_loopback(int port, double seconds, const volatile unsigned char* stop) {
  const auto stopped = [&] { return *stop != 0; };
  return tf_strategies::Report(tf_strategies::ConfineToLoopback(port, After(seconds), stopped));
}

void tfs_shut_connections_from_elsewhere(int port, double seconds) {
  tf_strategies::ShutConnectionsFromElsewhere(port, After(seconds));
}
