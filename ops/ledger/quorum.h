// Quorum: whose gradients count for the current step, and who applies them. Not thread-safe; knows neither time nor waiting.
//
// A step has two phases. While it *gathers*, submissions come in until as many as required have counted. Then it is *applied*: its
// members are settled, one worker (the applier) adds their gradients up and writes the weights, and Applied begins the next step. An
// applier that goes away leaves the same members to the next one, which may find some of the weights written already.
//
// Source: Chen, Monga, Bengio and Jozefowicz 2016, "Revisiting distributed synchronous SGD", section 3 (backup workers).
#ifndef OPS_LEDGER_QUORUM_H_
#define OPS_LEDGER_QUORUM_H_

#include <cstdint>
#include <map>
#include <vector>

namespace tf_strategies::ledger {

class Quorum {
 public:
  int64_t step() const { return step_; }
  bool applying() const { return applying_; }
  bool has_submissions() const { return !submissions_.empty(); }

  // While it gathers. A worker submits once a step, unless its submission is removed.
  void Submit(int worker, int64_t rows);
  bool HasSubmitted(int worker) const { return submissions_.count(worker) > 0; }
  // Also while it is applied; a submission can only be removed before. Returns whether it was.
  bool Remove(int worker);
  // Begins applying when at least `required` (and one) have submitted; the last to submit applies.
  bool Complete(int64_t required);

  // While it is applied:
  bool IsMember(int worker) const { return applying_ && HasSubmitted(worker); }
  std::vector<int> Members() const;         // ascending
  int64_t Rows() const;                     // of all members
  int applier() const { return applier_; }  // -1: nobody at present
  void Appoint(int worker) { applier_ = worker; }
  void Applied();  // the step is done; the next one gathers
  void Abandon();  // nobody applies the step: it gathers anew

  // While nobody has submitted.
  void SetStep(int64_t step) { step_ = step; }
  // One more update, outside of any quorum.
  void Advance() { ++step_; }

 private:
  int64_t step_ = 0;
  bool applying_ = false;
  std::map<int, int64_t> submissions_;  // rows, by worker
  int last_ = -1;                       // to submit
  int applier_ = -1;
};

}  // namespace tf_strategies::ledger

#endif  // OPS_LEDGER_QUORUM_H_
