// Writes what a communicator has counted and recorded as JSON; c_api.h has the fields.
#ifndef OPS_COMMUNICATOR_TO_JSON_H_
#define OPS_COMMUNICATOR_TO_JSON_H_

#include <string>
#include <vector>

#include "ops/communicator/communicator.h"
#include "ops/communicator/recorder.h"
#include "ops/transport/transport.h"

namespace tf_strategies {

std::string ToJson(const CommunicatorStats& stats, const std::string& transport);
std::string ToJson(const Recorder& recorder, const std::vector<ConnectionCounters>& connections, int rank,
                   int size);

}  // namespace tf_strategies

#endif  // OPS_COMMUNICATOR_TO_JSON_H_
