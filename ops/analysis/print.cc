#include "ops/analysis/print.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "ops/analysis/cost.h"

namespace tf_strategies::schedule {

std::string FormatGroup(const std::string& title, int size, const BuildRank& build) {
  // Columns are aligned over the whole table. Lines do not end with spaces.
  std::vector<Schedule> schedules;
  size_t width = 0;
  for (int rank = 0; rank < size; ++rank) {
    schedules.push_back(build(rank));
    for (const Step& step : schedules.back().steps) {
      for (const Action& action : step) width = std::max(width, DescribeAction(action).size());
    }
  }

  std::ostringstream text;
  text << title << ": size " << size << ", count " << schedules[0].count << "\n";
  for (const Schedule& schedule : schedules) {
    text << "\nrank " << schedule.rank << "\n";
    for (size_t step = 0; step < schedule.steps.size(); ++step) {
      std::string line = "  step " + std::to_string(step);
      for (const Action& action : schedule.steps[step]) {
        std::string cell = DescribeAction(action);
        cell.resize(width, ' ');
        line += "   " + cell;
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text << line << "\n";
    }
    const Cost cost = CountCost(schedule);
    text << "  sends " << cost.elements_sent << " elements in " << cost.messages_sent << " messages, adds "
         << cost.elements_reduced << "\n";
  }
  const GroupCost cost = CountGroupCost(size, build);
  text << "\nmost of a rank: " << cost.most.steps << " steps, sends " << cost.most.elements_sent
       << " elements in " << cost.most.messages_sent << " messages, adds " << cost.most.elements_reduced
       << "\n";
  return text.str();
}

}  // namespace tf_strategies::schedule
