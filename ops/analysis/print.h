// Schedules as text for people.
#ifndef OPS_ANALYSIS_PRINT_H_
#define OPS_ANALYSIS_PRINT_H_

#include <string>

#include "ops/analysis/group_program.h"

namespace tf_strategies::schedule {

// A table of all ranks: a line for each step, and what the rank sends and adds in all. Ends with a newline.
std::string FormatGroup(const std::string& title, int size, const BuildRank& build);

}  // namespace tf_strategies::schedule

#endif  // OPS_ANALYSIS_PRINT_H_
