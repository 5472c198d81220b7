#include "ops/confine/c_api.h"

#include <chrono>

#include "ops/base/c_interface.h"
#include "ops/confine/confine.h"

int tfs_confine_to_loopback(int port, double seconds, const volatile unsigned char* stop) {
  const auto until =
      std::chrono::steady_clock::now() +
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
  return tf_strategies::Report(tf_strategies::ConfineToLoopback(port, until, [&] { return *stop != 0; }));
}
