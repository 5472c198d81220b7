// Prints schedules as text.
#ifndef OPS_ANALYSIS_PRINT_H_
#define OPS_ANALYSIS_PRINT_H_

#include <string>

#include "ops/analysis/group_program.h"

namespace tf_strategies::schedule {

// Returns a table of all ranks, with a line for each step and the totals of each rank. It ends with a newline.
std::string FormatGroup(const std::string& title, int size, const BuildRank& build);

}  // namespace tf_strategies::schedule

#endif  // OPS_ANALYSIS_PRINT_H_
