// Detects that a simulation repeats itself with a period.
#ifndef OPS_ANALYSIS_REPETITION_H_
#define OPS_ANALYSIS_REPETITION_H_

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace tf_strategies::schedule {

class Repetition {
 public:
  // Returns true if the state is that of the last call. Call it once in each period.
  //
  // state: all values that determine the future, relative to the clock `now`.
  // carried: the bytes that each link has carried so far.
  bool Seen(std::vector<double> state, std::vector<double> carried, double now) {
    period_ = now - last_now_;
    bool repeats = state.size() == last_state_.size();
    for (size_t i = 0; i < state.size() && repeats; ++i) {
      repeats = std::abs(state[i] - last_state_[i]) <= kSameState * period_;
    }
    in_period_.clear();
    for (size_t i = 0; i < carried.size() && repeats; ++i) {
      in_period_.push_back(carried[i] - last_carried_[i]);
    }
    if (repeats) state.clear();
    last_state_ = std::move(state);
    last_carried_ = std::move(carried);
    last_now_ = now;
    return repeats;
  }

  // Call it after a state that cannot repeat.
  void Forget() { last_state_.clear(); }

  // After Seen has returned true: the length of the period, and the bytes that each link carries in it.
  double period() const { return period_; }
  const std::vector<double>& carried() const { return in_period_; }

 private:
  // The largest difference between equal states, relative to the period.
  static constexpr double kSameState = 1e-9;

  std::vector<double> last_state_;
  std::vector<double> last_carried_;
  std::vector<double> in_period_;
  double last_now_ = 0;
  double period_ = 0;
};

}  // namespace tf_strategies::schedule

#endif  // OPS_ANALYSIS_REPETITION_H_
